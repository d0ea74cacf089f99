#include "daemon/base/text.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grow.h"
#include "proto/utf8.h"

enum { SHORT_PIECE = 120 };
#define EXACT_INTEGER 1e15

void text_free(struct text *t)
{
    free(t->p);
    *t = (struct text){ 0 };
}

char *text_take(struct text *t, size_t *ret_len)
{
    char *p;

    if (!t->p)
        text_add(t, "");
    if (t->failed)
        text_free(t);
    p = t->p;
    if (ret_len)
        *ret_len = t->len;
    *t = (struct text){ 0 };
    return p;
}

static bool room(struct text *t, size_t more)
{
    t->failed = t->failed || !GROW(t->p, t->cap, t->len + more + 1);
    return !t->failed;
}

void text_add_bytes(struct text *t, const char *s, size_t len)
{
    if (!room(t, len))
        return;
    memcpy(t->p + t->len, s, len);
    t->len += len;
    t->p[t->len] = '\0';
}

void text_add(struct text *t, const char *s)
{
    text_add_bytes(t, s, strlen(s));
}

/* Most pieces are short, and are written in place. Only a piece that does not fit is written twice. */
void text_addf(struct text *t, const char *fmt, ...)
{
    va_list ap, again;
    int n;

    if (!room(t, SHORT_PIECE))
        return;
    va_start(ap, fmt);
    va_copy(again, ap);
    n = vsnprintf(t->p + t->len, t->cap - t->len, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n >= t->cap - t->len && room(t, (size_t)n))
        vsnprintf(t->p + t->len, t->cap - t->len, fmt, again);
    va_end(again);
    if (n >= 0 && !t->failed)
        t->len += (size_t)n;
}

/* Length of the leading bytes that need no escape. */
static size_t plain_length(const unsigned char *s)
{
    size_t n = 0;

    while (s[n] >= 0x20 && s[n] < 0x80 && s[n] != '"' && s[n] != '\\')
        n++;
    return n;
}

void text_json(struct text *t, const char *s)
{
    const unsigned char *p = (const unsigned char *)s, *end;

    if (!s) {
        text_add(t, "null");
        return;
    }
    end = p + strlen(s);
    text_add(t, "\"");
    while (*p) {
        size_t n = plain_length(p);

        text_add_bytes(t, (const char *)p, n);
        p += n;
        if (!*p)
            break;
        n = (size_t)utf8_length(p, end);

        if (n == 0)
            text_add(t, "?");
        else if (*p == '"' || *p == '\\')
            text_addf(t, "\\%c", *p);
        else if (*p < 0x20)
            text_addf(t, "\\u%04x", *p);
        else
            text_add_bytes(t, (const char *)p, n);
        p += n ? n : 1;
    }
    text_add(t, "\"");
}

void text_real(struct text *t, double v)
{
    char digits[40];
    int n;

    if (!isfinite(v)) {
        text_add(t, "null");
        return;
    }
    if (fabs(v) < EXACT_INTEGER && v == (double)(int64_t)v && (v != 0 || !signbit(v))) { /* most numbers are counts, and this is quick */
        text_addf(t, "%lld.0", (long long)v);
        return;
    }
    n = snprintf(digits, sizeof digits, "%.17g", v);
    /* A number without point or exponent would be read back as an integer. */
    if (!strpbrk(digits, ".e"))
        snprintf(digits + n, sizeof digits - (size_t)n, ".0");
    text_add(t, digits);
}
