#include "worker/data/split_list.h"

#include <stdlib.h>
#include <string.h>

#include "proto/err.h"

int split_list_open(struct split_list *l, const char *path, struct err *err)
{
    *l = (struct split_list){ .path = path };
    return whole_file_read(&l->file, path, SPLIT_MAX_BYTES, err);
}

void split_list_close(struct split_list *l)
{
    free(l->file.bytes);
    l->file.bytes = NULL;
}

static bool blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static int bad_line(const struct split_list *l, const char *why, struct err *err)
{
    return err_set(err, ERR_DATA, "%s, line %lld: %s", l->path, (long long)l->line, why);
}

static int words_of(const struct split_list *l, const uint8_t *at, const uint8_t *end, struct split_line *ret, struct err *err)
{
    while (at < end) {
        const uint8_t *word = at;

        while (at < end && !blank(*at))
            if (*at++ < ' ')
                return bad_line(l, "not a line of text", err);
        if (at - word > SPLIT_MAX_WORD)
            return bad_line(l, "a word is too long", err);
        if (at > word && ret->n == SPLIT_MAX_WORDS)
            return bad_line(l, "more than three words", err);
        if (at > word)
            memcpy(ret->word[ret->n++], word, (size_t)(at - word));
        while (at < end && blank(*at))
            at++;
    }
    return 1;
}

int split_list_next(struct split_list *l, struct split_line *ret, struct err *err)
{
    while (l->at < l->file.size) {
        const uint8_t *at = l->file.bytes + l->at, *end = memchr(at, '\n', l->file.size - l->at);
        int rc;

        end = end ? end : l->file.bytes + l->file.size;
        l->at = (size_t)(end - l->file.bytes) + 1;
        l->line++;
        memset(ret, 0, sizeof *ret);
        ret->number = l->line;
        rc = words_of(l, at, end, ret, err);
        if (rc < 0 || ret->n > 0)
            return rc;
    }
    return 0;
}

int64_t split_number(const char *word, int64_t max)
{
    int64_t v = 0;

    if (!*word)
        return -1;
    for (; *word; word++) {
        if (*word < '0' || *word > '9' || v > (max - (*word - '0')) / 10)
            return -1;
        v = v * 10 + (*word - '0');
    }
    return v;
}
