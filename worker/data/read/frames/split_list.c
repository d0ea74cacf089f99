#include "worker/data/read/frames/split_list.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/err.h"
#include "worker/data/text/json_scan.h"
#include "worker/data/text/text_lines.h"

/* Takes the elements of a split as lines. JSON never shortens a text, so the file's size is enough room. */
static void take_lines(struct json_scan *s, struct split_list *l)
{
    char *line = l->text + l->size;
    size_t len;

    scan_array(s);
    while (scan_element(s)) {
        if (!scan_string(s, line, l->file.size - l->size, &len))
            return;
        for (size_t i = 0; i < len; i++)
            if (line[i] == '\n' || line[i] == '\0') {
                scan_fail(s, "an element of a split is one line");
                return;
            }
        line[len] = '\n';
        l->size += len + 1;
        line += len + 1;
    }
}

/* Reads that split of dataset.json. */
static int read_json(struct split_list *l, const char *split, struct err *err)
{
    struct json_scan s;
    bool found = false;

    l->text = malloc(l->file.size + 1);
    if (!l->text)
        return err_set(err, -ENOMEM, "%s: no memory", l->path);
    scan_open(&s, l->path, (const char *)l->file.bytes, l->file.size);
    scan_object(&s);
    while (scan_member(&s)) {
        if (!scan_key_is(&s, "splits")) {
            scan_skip(&s);
            continue;
        }
        scan_object(&s);
        while (scan_member(&s)) {
            if (!scan_key_is(&s, split))
                scan_skip(&s);
            else if (found)
                scan_fail(&s, "\"%s\" is there twice", split);
            else
                take_lines(&s, l);
            found = found || scan_key_is(&s, split);
        }
    }
    scan_finish(&s);
    if (scan_failed(&s))
        return err_set(err, s.err.code, "%s", s.err.msg);
    return found ? 0 : err_set(err, ERR_DATA, "%s: \"splits\" has no \"%s\"", l->path, split);
}

int split_list_open(struct split_list *l, const char *path, const char *split, struct err *err)
{
    size_t len = strlen(path);
    int rc;

    *l = (struct split_list){ .path = path };
    rc = whole_file_read(&l->file, path, SPLIT_MAX_BYTES, err);
    if (rc >= 0 && len > 5 && strcasecmp(path + len - 5, ".json") == 0)
        return read_json(l, split, err);
    if (rc < 0)
        return rc;
    l->size = l->file.size;
    l->at = text_mark(l->file.bytes, l->size);
    return 0;
}

void split_list_close(struct split_list *l)
{
    free(l->file.bytes);
    free(l->text);
    l->file.bytes = NULL;
    l->text = NULL;
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
    const uint8_t *text = l->text ? (const uint8_t *)l->text : l->file.bytes;

    while (l->at < l->size) {
        const uint8_t *at = text + l->at, *end = memchr(at, '\n', l->size - l->at);
        int rc;

        end = end ? end : text + l->size;
        l->at = (size_t)(end - text) + 1;
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
