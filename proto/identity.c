#include "proto/identity.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct said {
    char *text;
    size_t size, len;
    int count;
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "none";
}

/* Adds ", cudnn 9.19.0 (was 9.18.0)" if the value has changed; words stand before it. */
static void compare(struct said *s, const json_t *was, const json_t *is, const char *key, const char *words, const char *more)
{
    const char *old = text_of(was, key), *new = text_of(is, key);
    size_t left = s->size - s->len;
    int n;

    if (strcmp(old, new) == 0)
        return;
    n = snprintf(s->text + s->len, left, "%s%s%s%s %s (was %s)", s->count ? ", " : "", words, *more ? " " : "", more, new, old);
    s->count++;
    if (n < 0 || (size_t)n >= left)
        s->text[s->len] = '\0'; /* added whole or not at all */
    else
        s->len += (size_t)n;
}

/* Compares a member that either object may lack. */
static void compare_if_told(struct said *s, const json_t *was, const json_t *is, const char *key, const char *words)
{
    if (json_object_get(was, key) && json_object_get(is, key))
        compare(s, was, is, key, words, "");
}

static void compare_files(struct said *s, const json_t *was, const json_t *is)
{
    const char *name;
    json_t *file;

    json_object_foreach ((json_t *)is, name, file) {
        const json_t *old = json_object_get(was, name);

        if (json_object_get(old, "version") && json_object_get(file, "version"))
            compare(s, old, file, "version", name, "version");
        if (json_object_get(old, "hash") && json_object_get(file, "hash"))
            compare(s, old, file, "hash", name, "hash");
    }
}

/* Compares members that both or only one of the objects have. A missing member reads "none". */
static void compare_all(struct said *s, const json_t *was, const json_t *is)
{
    const char *name;
    json_t *value;

    if (!was || !is)
        return;
    json_object_foreach ((json_t *)is, name, value) {
        compare(s, was, is, name, name, "");
    }
    json_object_foreach ((json_t *)was, name, value) {
        if (!json_object_get(is, name))
            compare(s, was, is, name, name, "");
    }
}

/* A run with another number of plans has met other shapes so far, which is no difference in choice. */
static void compare_plans(struct said *s, const json_t *was, const json_t *is)
{
    if (json_equal(json_object_get(was, "plan_count"), json_object_get(is, "plan_count")))
        compare_if_told(s, was, is, "plan_hash", "algorithms");
}

int identity_compare(const json_t *was, const json_t *is, char *ret, size_t size)
{
    struct said s = { .text = ret, .size = size };
    const json_t *data[] = { json_object_get(was, "data"), json_object_get(is, "data") };

    if (size > 0)
        ret[0] = '\0';
    compare_if_told(&s, was, is, "spec", "keys of the job");
    compare_if_told(&s, data[0], data[1], "train", "training data");
    compare_if_told(&s, data[0], data[1], "val", "validation data");
    compare_if_told(&s, was, is, "device", "device");
    compare_if_told(&s, was, is, "precision", "precision");
    compare_files(&s, json_object_get(was, "files"), json_object_get(is, "files"));
    compare_all(&s, json_object_get(was, "versions"), json_object_get(is, "versions"));
    compare_all(&s, json_object_get(was, "environment"), json_object_get(is, "environment"));
    compare_plans(&s, was, is);
    return s.count;
}
