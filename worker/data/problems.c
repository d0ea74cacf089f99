#include "worker/data/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"

static void add(struct problems *p, const char *fmt, va_list ap)
{
    p->count++;
    if (p->kept < PROBLEMS_KEPT)
        vsnprintf(p->text[p->kept++], PROBLEM_TEXT, fmt, ap);
}

void problems_add(struct problems *p, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add(p, fmt, ap);
    va_end(ap);
}

void problems_add_kept(struct problems *p, const char *fmt, ...)
{
    va_list ap;

    p->kept_records++;
    va_start(ap, fmt);
    add(p, fmt, ap);
    va_end(ap);
}

void problems_note(struct problems *p, const char *fmt, ...)
{
    va_list ap;

    p->notes++;
    if (p->notes_kept == NOTES_KEPT)
        return;
    va_start(ap, fmt);
    vsnprintf(p->note[p->notes_kept++], PROBLEM_TEXT, fmt, ap);
    va_end(ap);
}

int problems_err(const struct problems *p, const char *source, struct err *err)
{
    char text[sizeof err->msg];
    size_t used;

    used = (size_t)snprintf(text, sizeof text, "%s: %lld problem%s", source, (long long)p->count, p->count == 1 ? "" : "s");
    for (int i = 0; i < p->kept && used < sizeof text; i++) {
        size_t need = 2 + strlen(p->text[i]);

        /* whole sentences only, except that the first is always begun */
        if (i > 0 && used + need + 8 >= sizeof text) {
            snprintf(text + used, sizeof text - used, "; ...");
            break;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? ": " : "; ", p->text[i]);
    }
    return err_set(err, ERR_DATA, "%s", text);
}
