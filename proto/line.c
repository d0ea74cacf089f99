#include "proto/line.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "proto/utf8.h"

static void put(struct line *l, const char *bytes, size_t n)
{
    if (l->full || n >= l->size - l->len) {
        l->full = true;
        return;
    }
    memcpy(l->buf + l->len, bytes, n);
    l->len += n;
}

static void put_escaped(struct line *l, const char *text, size_t max_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t left = strnlen(text, max_bytes);
    char esc[8];

    put(l, "\"", 1);
    while (left > 0) {
        size_t n = (size_t)utf8_length(s, s + left);

        if (n == 1 && (*s == '"' || *s == '\\')) {
            esc[0] = '\\';
            esc[1] = (char)*s;
            put(l, esc, 2);
        } else if (n == 1 && *s < 0x20) {
            put(l, esc, (size_t)snprintf(esc, sizeof esc, "\\u%04x", *s));
        } else if (n > 0) {
            put(l, (const char *)s, n);
        } else {
            put(l, "?", 1);
        }
        n += n == 0;
        s += n;
        left -= n;
    }
    put(l, "\"", 1);
}

static void key_part(struct line *l, const char *key)
{
    if (l->comma)
        put(l, ",", 1);
    l->comma = true;
    if (!key)
        return;
    put_escaped(l, key, SIZE_MAX);
    put(l, ":", 1);
}

void line_begin(struct line *l, char *buf, size_t size_bytes, const char *type)
{
    *l = (struct line){ .buf = buf, .size = size_bytes };
    put(l, "{", 1);
    line_str(l, "type", type);
}

void line_text(struct line *l, const char *key, const char *value, size_t max_bytes)
{
    size_t n = strnlen(value, max_bytes);

    if (value[n]) /* never cut within a character */
        while (n > 0 && ((unsigned char)value[n] & 0xc0) == 0x80)
            n--;
    key_part(l, key);
    put_escaped(l, value, n);
}

void line_str(struct line *l, const char *key, const char *value)
{
    if (!value) {
        line_null(l, key);
        return;
    }
    key_part(l, key);
    put_escaped(l, value, SIZE_MAX);
}

void line_int(struct line *l, const char *key, int64_t value)
{
    char text[24];

    key_part(l, key);
    put(l, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)value));
}

void line_real(struct line *l, const char *key, double value)
{
    char text[32];
    int n;

    if (!isfinite(value)) {
        line_null(l, key);
        return;
    }
    key_part(l, key);
    if (fabs(value) < 1e17 && value == (double)(int64_t)value) /* counts: this is cheaper, and %g would make integers of them */
        n = snprintf(text, sizeof text, "%s%lld.0", signbit(value) && value == 0 ? "-" : "", (long long)value);
    else
        n = snprintf(text, sizeof text, "%.17g", value);
    put(l, text, (size_t)n);
}

void line_bool(struct line *l, const char *key, bool value)
{
    key_part(l, key);
    put(l, value ? "true" : "false", value ? 4 : 5);
}

void line_null(struct line *l, const char *key)
{
    key_part(l, key);
    put(l, "null", 4);
}

void line_json(struct line *l, const char *key, const char *json)
{
    key_part(l, key);
    put(l, json, strlen(json));
}

void line_open(struct line *l, const char *key, char bracket)
{
    key_part(l, key);
    put(l, &bracket, 1);
    l->comma = false;
}

void line_close(struct line *l, char bracket)
{
    put(l, &bracket, 1);
    l->comma = true;
}

int line_done(struct line *l, struct err *err)
{
    put(l, "}\n", 2);
    if (l->full)
        return err_set(err, ERR_INPUT, "message over %zu bytes", l->size - 1);
    l->buf[l->len] = '\0';
    return 0;
}
