/* SPDX-License-Identifier: Apache-2.0 */ /* proto/job/jobspec_form.c - a job as JSON again: the whole job, and the part
 * of it that decides the results. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/job/jobspec_table.h"

static json_t *reals_json(const struct jobspec_list *list)
{
    json_t *out = json_array();

    for (int i = 0; i < list->n && out; i++) {
        double x = list->v[i];

        if (json_array_append_new(out, x == floor(x) && x < JOB_MAX_WHOLE ? json_integer((json_int_t)x) : json_real(x)) < 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

/* A square is written as a plain number, as it was before there were rectangles: checkpoints keep a hash of it. */
static json_t *size_json(const struct jobspec_size *size)
{
    if (size->w < 0)
        return json_null();
    return size->w == size->h ? json_integer(size->w) : json_pack("[I, I]", (json_int_t)size->w, (json_int_t)size->h);
}

/* A list of one is written as a plain number, however it was given. */
static json_t *ints_json(const struct jobspec_list *list)
{
    if (list->n == 0)
        return json_null();
    return list->n == 1 ? json_integer((json_int_t)list->v[0]) : reals_json(list);
}

static json_t *member_json(const struct jobspec *s, const struct job_key *k)
{
    const void *at = (const char *)s + k->offset;
    bool nullable = strcmp(k->def, "null") == 0;

    switch (k->type) {
    case TYPE_INT:
        return nullable && *(const int64_t *)at < 0 ? json_null() : json_integer(*(const int64_t *)at);
    case TYPE_REAL:
        return isnan(*(const double *)at) ? json_null() : json_real(*(const double *)at);
    case TYPE_BOOL:
        return json_boolean(*(const bool *)at);
    case TYPE_REALS:
        return reals_json(at);
    case TYPE_SIZE:
        return size_json(at);
    case TYPE_INTS:
        return ints_json(at);
    case TYPE_MAP:
    case TYPE_STRS:
    case TYPE_NUMBERS:
    case TYPE_ARGS:
        return json_deep_copy(*(json_t *const *)at);
    default:
        return *(char *const *)at ? json_string(*(char *const *)at) : json_null();
    }
}

/* Takes over value. Returns 0, or -1: out of memory. */
static int put(json_t *root, const char *path, json_t *value)
{
    const char *dot;

    for (; (dot = strchr(path, '.')); path = dot + 1) {
        char group[32];

        snprintf(group, sizeof group, "%.*s", (int)(dot - path), path);
        if (!json_object_get(root, group))
            json_object_set_new(root, group, json_object());
        root = json_object_get(root, group);
    }
    return json_object_set_new(root, path, value);
}

json_t *jobspec_json(const struct jobspec *s)
{
    json_t *root = json_object();

    for (size_t i = 0; i < JOB_KEY_COUNT && root; i++) {
        const struct job_key *k = &job_keys[i];
        json_t *value = job_key_is_stored(k) && job_key_of(k, s->family) ? member_json(s, k) : NULL;

        if (json_is_null(value) && job_word_is_errand(k->path)) /* most jobs are no errands */
            continue;
        if (job_key_is_stored(k) && job_key_of(k, s->family) && put(root, k->path, value) < 0) {
            json_decref(root);
            root = NULL;
        }
    }
    return root;
}

/* Compares two values; a whole number may be written as 1 or as 1.0. */
static bool equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b) : json_equal(a, b);
}

/* Whether k is part of the deciding keys with this value; -1: out of memory. */
static int decides(const struct job_key *k, const json_t *value)
{
    json_t *neutral;
    int differs;

    if (!job_key_has_neutral(k))
        return strcmp(k->neutral, "-") == 0;
    neutral = json_loads(k->neutral, JSON_DECODE_ANY, NULL);
    differs = !neutral || !value ? -1 : !equal(value, neutral);
    json_decref(neutral);
    return differs;
}

/* but: a key that is left out, or NULL. paths: includes keys of type PATH. */
static json_t *deciding(const struct jobspec *s, const char *but, bool paths)
{
    json_t *root = json_object();

    for (size_t i = 0; i < JOB_KEY_COUNT && root; i++) {
        const struct job_key *k = &job_keys[i];
        json_t *value = member_json(s, k);
        bool left_out = (but && strcmp(k->path, but) == 0) || !job_key_of(k, s->family) || (k->type == TYPE_PATH && !paths);
        int rc = left_out ? 0 : decides(k, value);

        if (rc > 0)
            rc = put(root, k->path, json_incref(value));
        json_decref(value);
        if (rc < 0) {
            json_decref(root);
            root = NULL;
        }
    }
    return root;
}

json_t *jobspec_deciding(const struct jobspec *s, const char *but)
{
    return deciding(s, but, true);
}

json_t *jobspec_portable(const struct jobspec *s)
{
    return deciding(s, NULL, false);
}

/* Sets the value, or each value of an object, to null. Returns 1: it had one; 0: it had none; -1: out of memory. */
static int hide(json_t *group, const char *name)
{
    json_t *value = json_object_get(group, name), *member;
    const char *key;
    int had = 0;

    if (!json_is_object(value))
        return !value || json_is_null(value) ? 0 : json_object_set_new(group, name, json_null()) < 0 ? -1 : 1;
    json_object_foreach (value, key, member)
        had = had < 0 || json_object_set_new(value, key, json_null()) < 0 ? -1 : 1;
    return had;
}

json_t *jobspec_hide_code(json_t *root)
{
    json_t *names = json_array();

    for (size_t i = 0; i < JOB_KEY_COUNT && names; i++) {
        const char *path = job_keys[i].path, *dot;
        json_t *group = root;
        int had;

        if (!job_key_is_code(&job_keys[i]))
            continue;
        for (; (dot = strchr(path, '.')); path = dot + 1)
            group = json_object_getn(group, path, (size_t)(dot - path));
        had = hide(group, path);
        if (had < 0 || (had > 0 && json_array_append_new(names, json_string(job_keys[i].path)) < 0)) {
            json_decref(names);
            names = NULL;
        }
    }
    return names;
}
