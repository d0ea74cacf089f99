#include "proto/clean.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

json_t *clean_string(const char *text)
{
    json_t *s = json_string(text);
    char *copy;

    if (s || !(copy = strdup(text)))
        return s;
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p >= 0x80)
            *p = '?';
    s = json_string(copy);
    free(copy);
    return s;
}

void clean_copy(char *to, size_t size, const char *from)
{
    size_t n = strlen(from);

    if (n >= size)
        for (n = size - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80;)
            n--;
    memcpy(to, from, n);
    to[n] = '\0';
}

/* Number of bytes of a sequence that begins with this byte; 0: no sequence begins so. */
static size_t sequence(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : lead >= 0xe0 && lead < 0xf0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

size_t clean_next(const char *text, size_t len, uint32_t *ret_code)
{
    static const unsigned char bits[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    const unsigned char *p = (const unsigned char *)text;
    size_t n = sequence(*p);
    uint32_t code = *p & bits[n];

    *ret_code = *p;
    for (size_t i = 1; i < n; i++) {
        if (i == len)
            return 0;
        if ((p[i] & 0xc0) != 0x80)
            return 1;
        code = code << 6 | (p[i] & 0x3f);
    }
    if (n == 0)
        return 1;
    *ret_code = code;
    return n;
}

bool clean_is_obeyed(uint32_t code)
{
    static const struct {
        uint32_t from, to;
    } ranges[] = { { 0, 0x1f },        { 0x7f, 0x9f },     { 0x61c, 0x61c },   { 0x200b, 0x200b }, { 0x200e, 0x200f },
                   { 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f } };

    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].from && code <= ranges[i].to)
            return true;
    return false;
}

struct clean_shown clean_shown(uint32_t code)
{
    struct clean_shown ret;

    snprintf(ret.s, sizeof ret.s, code < 0x80 ? "^%c" : "<U+%04X>", code < 0x80 ? code ^ 0x40 : code & 0x1fffff);
    return ret;
}

char *clean_whole(const char *text)
{
    char *ret = strdup(text);
    unsigned char *p = (unsigned char *)ret, *end = p ? p + strlen(ret) : p;

    while (p < end) {
        int n = utf8_length(p, end);

        *p = n ? *p : '?';
        p += n ? n : 1;
    }
    return ret;
}

bool clean_has_obeyed(const char *text)
{
    uint32_t code;
    size_t n;

    for (size_t left = strlen(text); left > 0; text += n, left -= n) {
        n = clean_next(text, left, &code);
        if (clean_is_obeyed(code))
            return true;
        n = n ? n : left;
    }
    return false;
}
