#include "worker/data/read/labels/data_yaml.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/err.h"
#include "worker/data/set/dataset.h"
#include "worker/data/set/problems.h"

struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current event */
    bool have;          /* event must be freed */
    const char *name;
    int depth;
    struct problems *problems;
    struct err *err;
};

static int fail(struct reader *r, const char *what)
{
    return err_set(r->err, ERR_DATA, "%s, line %zu: %s", r->name, r->event.start_mark.line + 1, what);
}

/* libyaml reports its own errors with a mark, or with the offset in the file. */
static int fail_parse(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;

    if (p->error == YAML_MEMORY_ERROR)
        return err_set(r->err, -ENOMEM, "%s: no memory", r->name);
    return err_set(r->err, ERR_DATA, "%s, line %zu: not YAML: %.200s", r->name,
                   (p->error == YAML_READER_ERROR ? p->mark.line : p->problem_mark.line) + 1, p->problem ? p->problem : "?");
}

static int next(struct reader *r)
{
    if (r->have)
        yaml_event_delete(&r->event);
    r->have = false;
    if (!yaml_parser_parse(&r->parser, &r->event))
        return fail_parse(r);
    r->have = true;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT:
        return fail(r, "an alias: they are not followed");
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        return ++r->depth > YAML_MAX_DEPTH ? fail(r, "nested too deep") : 0;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        r->depth--;
        return 0;
    default:
        return 0;
    }
}

/* Skips the rest of the value that begins with the current event. */
static int skip(struct reader *r)
{
    int depth = r->depth, rc = 0;

    if (r->event.type != YAML_SEQUENCE_START_EVENT && r->event.type != YAML_MAPPING_START_EVENT)
        return 0;
    while (rc == 0 && r->depth >= depth)
        rc = next(r);
    return rc;
}

/* A text without NUL, of at most max bytes. */
static int text(struct reader *r, size_t max, const char **ret)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return fail(r, "should be text");
    *ret = (const char *)r->event.data.scalar.value;
    if (r->event.data.scalar.length == 0 || r->event.data.scalar.length > max || strlen(*ret) != r->event.data.scalar.length)
        return fail(r, "is empty or too long");
    for (const char *p = *ret; *p; p++)
        if ((unsigned char)*p < ' ')
            return fail(r, "holds a control character");
    return 0;
}

static int whole(struct reader *r, int64_t max, int64_t *ret)
{
    const char *word;
    double v;
    int rc = text(r, 32, &word);

    if (rc < 0)
        return rc;
    if (!text_number(&(struct text_line){ word, strlen(word), 0 }, &v) || v < 0 || v > (double)max || v != (double)(int64_t)v)
        return fail(r, "should be a whole number");
    *ret = (int64_t)v;
    return 0;
}

/* True if the value is null in YAML; then its key counts as absent. */
static bool is_null(const struct reader *r)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };

    if (r->event.type != YAML_SCALAR_EVENT || r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp((const char *)r->event.data.scalar.value, words[i]) == 0)
            return true;
    return false;
}

/* ---- keys ---- */

static int put_path(struct reader *r, struct data_yaml *y)
{
    const char *path;
    int rc = text(r, DATASET_MAX_PATH / 2, &path);

    if (rc < 0)
        return rc;
    if (y->npaths == YAML_MAX_PATHS)
        return fail(r, "too many folders and lists");
    y->path[y->npaths] = strdup(path);
    return y->path[y->npaths++] ? 0 : err_set(r->err, -ENOMEM, "%s: no memory", r->name);
}

/* Reads one path, or a list of paths. */
static int read_split(struct reader *r, struct data_yaml *y)
{
    int rc = 0;

    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return put_path(r, y);
    while ((rc = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT)
        if ((rc = put_path(r, y)) < 0)
            return rc;
    return rc;
}

static int put_name(struct reader *r, struct label_names *names)
{
    const char *name;
    int rc = text(r, LABEL_NAME_MAX, &name);

    if (rc < 0)
        return rc;
    return label_names_add_line(names, r->name, &(struct text_line){ name, strlen(name), (int64_t)r->event.start_mark.line + 1 }, r->err);
}

/* Reads pairs of number and name, in any order. */
static int read_numbered(struct reader *r, struct label_names *names)
{
    char **by_number = calloc(DATASET_MAX_CLASSES, sizeof *by_number);
    int64_t number, n = 0;
    const char *name;
    int rc = by_number ? 0 : err_set(r->err, -ENOMEM, "%s: no memory", r->name);

    while (rc == 0 && (rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT) {
        rc = whole(r, DATASET_MAX_CLASSES - 1, &number);
        if (rc == 0 && by_number[number])
            rc = fail(r, "the number of a class is there twice");
        if (rc == 0)
            rc = next(r);
        if (rc == 0)
            rc = text(r, LABEL_NAME_MAX, &name);
        if (rc == 0 && !(by_number[number] = strdup(name)))
            rc = err_set(r->err, -ENOMEM, "%s: no memory", r->name);
        n += rc == 0;
    }
    for (int64_t i = 0; i < n && rc == 0; i++) {
        if (!by_number[i])
            rc = fail(r, "the numbers of \"names\" have a gap");
        else if (label_names_find(names, by_number[i]) >= 0)
            rc = fail(r, "a name is there twice");
        else if ((rc = label_names_add(names, r->name, by_number[i], r->err)) > 0)
            rc = 0;
    }
    for (int i = 0; i < DATASET_MAX_CLASSES && by_number; i++)
        free(by_number[i]);
    free(by_number);
    return rc;
}

static int read_names(struct reader *r, struct label_names *names)
{
    int rc = 0;

    if (r->event.type == YAML_MAPPING_START_EVENT)
        return read_numbered(r, names);
    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return fail(r, "\"names\" is neither a list nor numbers with names");
    while ((rc = next(r)) == 0 && r->event.type != YAML_SEQUENCE_END_EVENT)
        if ((rc = put_name(r, names)) < 0)
            return rc;
    return rc;
}

static int read_root(struct reader *r, struct data_yaml *y)
{
    const char *path;
    int rc;

    rc = text(r, DATASET_MAX_PATH / 2, &path);
    if (rc < 0)
        return rc;
    y->root = strdup(path);
    return y->root ? 0 : err_set(r->err, -ENOMEM, "%s: no memory", r->name);
}

/* [K, D]: K key points of D numbers. The third number, if any, is the point's visibility. */
static int read_points(struct reader *r, struct data_yaml *y)
{
    int64_t points = 0, numbers = 0;
    int rc;

    if (r->event.type != YAML_SEQUENCE_START_EVENT)
        return fail(r, "should be [K, D]: K key points of D numbers, 2 or 3");
    rc = next(r);
    if (rc == 0)
        rc = whole(r, YAML_MAX_POINTS, &points);
    if (rc == 0)
        rc = next(r);
    if (rc == 0)
        rc = whole(r, 3, &numbers);
    if (rc == 0)
        rc = next(r);
    if (rc == 0 && (r->event.type != YAML_SEQUENCE_END_EVENT || numbers < 2 || points < 1))
        return fail(r, "should be [K, D]: K key points of D numbers, 2 or 3");
    y->points = (int)(points * numbers);
    return rc;
}

enum key { KEY_PATH, KEY_SPLIT, KEY_VALIDATION, KEY_NAMES, KEY_NC, KEY_POINTS, KEY_NONE };

static enum key key_of(const struct reader *r, const char *split)
{
    const char *const keys[KEY_NONE] = { "path", split, strcmp(split, "val") == 0 ? "validation" : "", "names", "nc", "kpt_shape" };
    int k = 0;

    while (k < KEY_NONE && (r->event.type != YAML_SCALAR_EVENT || strcmp((const char *)r->event.data.scalar.value, keys[k]) != 0))
        k++;
    return (enum key)k;
}

/* Notes the key, unless it never matters to a reader: other splits, the origin of the set, names of key points. */
static void tell_unknown(struct reader *r)
{
    static const char *const ours[] = { "path", "train", "val", "names", "nc", "kpt_shape", NULL };
    static const char *const harmless[] = { "train",    "val",      "validation", "test",    "minival",     "download",
                                            "roboflow", "flip_idx", "kpt_names",  "license", "licence",     "version",
                                            "author",   "date",     "url",        "task",    "description", "info" };
    const char *key = (const char *)r->event.data.scalar.value;
    char place[512];

    if (r->event.type != YAML_SCALAR_EVENT)
        key = "(a list or keys)";
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(key, harmless[i]) == 0)
            return;
    snprintf(place, sizeof place, "%.400s, line %zu", r->name, r->event.start_mark.line + 1);
    problems_note_key(r->problems, place, "key", key, ours);
}

static int read_value(struct reader *r, enum key key, struct data_yaml *y)
{
    if (key == KEY_POINTS && is_null(r))
        y->points = 0;
    if (key < KEY_NONE && is_null(r))
        return 0;
    switch (key) {
    case KEY_PATH:
        return read_root(r, y);
    case KEY_SPLIT:
    case KEY_VALIDATION:
        return read_split(r, y);
    case KEY_NAMES:
        return read_names(r, &y->names);
    case KEY_NC:
        return whole(r, DATASET_MAX_CLASSES, &y->nc);
    case KEY_POINTS:
        return read_points(r, y);
    default:
        return skip(r);
    }
}

/* The current event is a member's key. */
static int read_member(struct reader *r, const char *split, struct data_yaml *y, bool seen[KEY_NONE])
{
    enum key key = key_of(r, split);
    int rc = 0;

    if (key < KEY_NONE && seen[key])
        return fail(r, "a key that is there twice");
    if (key < KEY_NONE)
        seen[key] = true;
    else
        tell_unknown(r);
    if ((key == KEY_SPLIT || key == KEY_VALIDATION) && y->npaths > 0)
        return fail(r, "\"val\" and \"validation\" are both there");
    if (r->event.type != YAML_SCALAR_EVENT)
        rc = skip(r);
    if (rc == 0)
        rc = next(r);
    return rc < 0 ? rc : read_value(r, key, y);
}

/* Makes up names for classes without names, like ultralytics' programs. */
static int make_names(struct reader *r, struct data_yaml *y)
{
    char name[32];
    int rc = 0;

    for (int64_t i = 0; i < y->nc && rc >= 0; i++) {
        snprintf(name, sizeof name, "class_%lld", (long long)i);
        rc = label_names_add(&y->names, r->name, name, r->err);
    }
    problems_note(r->problems, "%s: there is no \"names\": the classes of \"nc\" are called class_0 to class_%lld", r->name,
                  (long long)y->nc - 1);
    return rc < 0 ? rc : 0;
}

static int read_document(struct reader *r, const char *split, struct data_yaml *y)
{
    bool seen[KEY_NONE] = { false };
    int rc = next(r); /* start of the stream */

    if (rc == 0)
        rc = next(r);
    if (rc == 0 && r->event.type != YAML_DOCUMENT_START_EVENT)
        return err_set(r->err, ERR_DATA, "%s: there is nothing in it", r->name);
    if (rc == 0)
        rc = next(r);
    if (rc == 0 && r->event.type != YAML_MAPPING_START_EVENT)
        return fail(r, "should be keys and values, as \"train: images/train\"");
    while (rc == 0 && (rc = next(r)) == 0 && r->event.type != YAML_MAPPING_END_EVENT)
        rc = read_member(r, split, y, seen);
    if (rc == 0)
        rc = next(r); /* end of the document */
    if (rc == 0)
        rc = next(r);
    return rc == 0 && r->event.type != YAML_STREAM_END_EVENT ? fail(r, "a second document") : rc;
}

int data_yaml_parse(const char *name, const void *bytes, size_t size, const char *split, struct data_yaml *ret, struct problems *problems,
                    struct err *err)
{
    struct reader r = { .name = name, .problems = problems, .err = err };
    int rc;

    ret->nc = ret->points = -1;
    if (!yaml_parser_initialize(&r.parser))
        return err_set(err, -ENOMEM, "%s: no memory", name);
    yaml_parser_set_input_string(&r.parser, bytes, size);
    rc = read_document(&r, split, ret);
    if (rc == 0 && ret->names.n == 0 && ret->nc > 0)
        rc = make_names(&r, ret);
    if (r.have)
        yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return rc;
}

void data_yaml_free(struct data_yaml *y)
{
    for (int i = 0; i < y->npaths; i++)
        free(y->path[i]);
    free(y->root);
    label_names_free(&y->names);
    *y = (struct data_yaml){ 0 };
}
