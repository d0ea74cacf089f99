#include "worker/data/text/text_lines.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/utf8.h"

enum { NUMBER_MAX = 63 }; /* characters */

size_t text_mark(const void *bytes, size_t size)
{
    return size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

void text_lines_open(struct text_lines *l, const char *path, const void *bytes, size_t size)
{
    const char *text = bytes;

    *l = (struct text_lines){ .path = path, .at = size ? text + text_mark(bytes, size) : NULL, .end = size ? text + size : NULL };
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int bad_line(const struct text_lines *l, const char *why, struct err *err)
{
    return err_set(err, ERR_DATA, "%s, line %lld: %s", l->path, (long long)l->line, why);
}

static int judge(const struct text_lines *l, const struct text_line *line, struct err *err)
{
    if (line->len > TEXT_MAX_LINE)
        return bad_line(l, "is too long", err);
    for (size_t i = 0; i < line->len; i++)
        if ((unsigned char)line->text[i] < ' ' && line->text[i] != '\t')
            return bad_line(l, "not a line of text", err);
    return utf8_good(line->text, line->len) ? 1 : bad_line(l, "not UTF-8", err);
}

int text_lines_next(struct text_lines *l, struct text_line *ret, struct err *err)
{
    while (l->at < l->end) {
        const char *from = l->at, *to = memchr(from, '\n', (size_t)(l->end - from));

        to = to ? to : l->end;
        l->at = to < l->end ? to + 1 : to;
        l->line++;
        while (from < to && blank(*from))
            from++;
        while (to > from && blank(to[-1]))
            to--;
        *ret = (struct text_line){ from, (size_t)(to - from), l->line };
        if (ret->len > 0)
            return judge(l, ret, err);
    }
    return 0;
}

bool text_word(struct text_line *line, struct text_line *ret_word)
{
    const char *from = line->text, *end = from + line->len, *to;

    while (from < end && blank(*from))
        from++;
    for (to = from; to < end && !blank(*to);)
        to++;
    *ret_word = (struct text_line){ from, (size_t)(to - from), line->number };
    line->text = to;
    line->len = (size_t)(end - to);
    return ret_word->len > 0;
}

bool text_number(const struct text_line *word, double *ret)
{
    char text[NUMBER_MAX + 1], *end;

    if (word->len == 0 || word->len > NUMBER_MAX)
        return false;
    memcpy(text, word->text, word->len);
    text[word->len] = '\0';
    if (strspn(text, "+-.0123456789eE") != word->len) /* strtod() accepts more: nan, inf, 0x1p3 */
        return false;
    *ret = strtod(text, &end);
    return *end == '\0' && end > text && isfinite(*ret);
}
