#include "worker/data/set/problems.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "proto/near.h"

void problems_add(struct problems *p, const char *fmt, ...)
{
    va_list ap;

    p->count++;
    if (p->kept == PROBLEMS_KEPT)
        return;
    va_start(ap, fmt);
    vsnprintf(p->text[p->kept++], PROBLEM_TEXT, fmt, ap);
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

/* True if a kept note has this text. */
static bool is_noted(const struct problems *p, const char *text)
{
    for (int i = 0; i < p->notes_kept; i++)
        if (strstr(p->note[i], text))
            return true;
    return false;
}

void problems_note_key(struct problems *p, const char *place, const char *what, const char *key, const char *const *known)
{
    const char *near = near_word(key, known);
    char text[160];

    snprintf(text, sizeof text, ": %.40s \"%.60s\" is not known and ignored", what, key);
    if (!is_noted(p, text))
        problems_note(p, "%s%s%s%s%s", place, text, near ? "; \"" : "", near ? near : "", near ? "\" may be meant" : "");
}

void problems_forget(struct problems *p)
{
    memset(p, 0, sizeof *p);
}

/* advice follows the number of problems. */
static int tell(const struct problems *p, const char *source, const char *advice, struct err *err)
{
    char text[sizeof err->msg];
    size_t used;

    used = (size_t)snprintf(text, sizeof text, "%s: %lld problem%s%s", source, (long long)p->count, p->count == 1 ? "" : "s", advice);
    for (int i = 0; i < p->kept && used < sizeof text; i++) {
        size_t need = 2 + strlen(p->text[i]);

        /* only whole sentences, but the first is always started */
        if (i > 0 && used + need + 8 >= sizeof text) {
            snprintf(text + used, sizeof text - used, "; ...");
            break;
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? ": " : "; ", p->text[i]);
    }
    return err_set(err, ERR_DATA, "%s", text);
}

int problems_err(const struct problems *p, const char *source, struct err *err)
{
    return tell(p, source, "", err);
}

int problems_refuse(const struct problems *p, const char *source, struct err *err)
{
    return tell(p, source, " (data.on_bad=skip leaves out bad records)", err);
}
