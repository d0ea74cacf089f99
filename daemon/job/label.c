#include "daemon/job/label.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "daemon/base/text.h"
#include "proto/clean.h"
#include "proto/err.h"

#define TAG_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* Length of the tag at `at` in "a,b,c". */
static size_t length_of(const char *at)
{
    return strcspn(at, ",");
}

static const char *next_of(const char *at)
{
    at += length_of(at);
    return at + (*at == ',');
}

/* The place of the tag in `tags`, or NULL. */
static const char *find(const char *tags, const char *tag, size_t len)
{
    for (const char *at = tags; *at; at = next_of(at))
        if (length_of(at) == len && memcmp(at, tag, len) == 0)
            return at;
    return NULL;
}

bool label_has(const char *tags, const char *tag)
{
    return find(tags, tag, strlen(tag)) != NULL;
}

/* Writes the tags as a JSON array. Their characters need no escapes in JSON. */
void label_text(struct text *out, const char *tags)
{
    text_add(out, "[");
    for (const char *at = tags; *at; at = next_of(at))
        text_addf(out, "%s\"%.*s\"", at > tags ? "," : "", (int)length_of(at), at);
    text_add(out, "]");
}

json_t *label_json(const char *tags)
{
    json_t *all = json_array();

    for (const char *at = tags; *at; at = next_of(at))
        json_array_append_new(all, json_stringn(at, length_of(at)));
    return all;
}

static int count(const char *tags)
{
    int n = 0;

    for (const char *at = tags; *at; at = next_of(at))
        n++;
    return n;
}

static void take_away(char *tags, const char *tag, size_t len)
{
    char *at = (char *)find(tags, tag, len);

    if (!at)
        return;
    if (at[len]) /* with the comma behind it; for the last tag, the one before it */
        memmove(at, at + len + 1, strlen(at + len + 1) + 1);
    else
        at[at > tags ? -1 : 0] = '\0';
}

/* Adds the tag in alphabetical order. */
static int add(char *tags, const char *tag, size_t len, struct err *err)
{
    char *at = tags, *next;

    if (find(tags, tag, len))
        return 0;
    if (count(tags) >= JOB_TAGS)
        return err_field(err, ERR_INPUT, "tags", "tags: a job has at most %d", JOB_TAGS);
    while (*at && strncmp(at, tag, len) < 0)
        at = (char *)next_of(at);
    if (!*at && at > tags) {
        *at++ = ',';
        memcpy(at, tag, len);
        at[len] = '\0';
        return 0;
    }
    next = at + len + (*at != '\0');
    memmove(next, at, strlen(at) + 1);
    memcpy(at, tag, len);
    if (next > at + len)
        at[len] = ',';
    return 0;
}

static int change(char *tags, const char *word, size_t len, struct err *err)
{
    bool gone = word[0] == '-', sign = gone || word[0] == '+';

    word += sign;
    len -= sign;
    if (len == 0 || len > JOB_TAG_MAX || strspn(word, TAG_LETTERS) < len || word[0] == '-')
        return err_field(err, ERR_INPUT, "tags", "tags: '%.*s' is not a tag: 1 to %d of a-z A-Z 0-9 . _ -, not - first",
                         (int)(len > 60 ? 60 : len), word, JOB_TAG_MAX);
    if (!gone)
        return add(tags, word, len, err);
    take_away(tags, word, len);
    return 0;
}

int label_change(char tags[JOB_TAGS_BYTES], const char *changes, struct err *err)
{
    char now[JOB_TAGS_BYTES];
    int rc = 0;

    snprintf(now, sizeof now, "%s", tags);
    for (const char *at = changes + strspn(changes, " "); *at && rc == 0; at += strspn(at, " ")) {
        size_t len = strcspn(at, " ");

        rc = change(now, at, len, err);
        at += len;
    }
    if (rc == 0)
        memcpy(tags, now, sizeof now);
    return rc;
}

int label_check_note(const char *note, struct err *err)
{
    if (strlen(note) > JOB_NOTE_MAX)
        return err_field(err, ERR_INPUT, "note", "note: must have at most %d bytes, has %zu", JOB_NOTE_MAX, strlen(note));
    if (clean_has_obeyed(note))
        return err_field(err, ERR_INPUT, "note", "note: one line of text, without control or format characters");
    return 0;
}
