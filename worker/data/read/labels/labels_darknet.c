/* SPDX-License-Identifier: Apache-2.0 */ /* darknet's lists. A file that ends with .data has lines "key = value":
 * train and valid are the lists of pictures, names is the file of class names, classes their number. A list alone
 * needs data.names. Paths that are not absolute are below data.train.images; by default below the .data file's
 * folder or the one above, whichever contains the list: darknet takes them from its working folder. Source: specs
 * yolov3 section 5.1. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "worker/data/read/labels/labels_make.h"
#include "worker/data/set/problems.h"

enum { DATA_MAX_BYTES = 1 << 20, VALUE_MAX = 2047, CLASSES_MAX = 1 << 16 };

struct data_file {
    char train[VALUE_MAX + 1], valid[VALUE_MAX + 1], names[VALUE_MAX + 1], classes[VALUE_MAX + 1]; /* "": missing */
};

/* Notes an unknown key, unless darknet's training ignores it as well. */
static void tell_unknown(struct labels_maker *m, const char *path, const struct text_line *word)
{
    static const char *const ours[] = { "train", "valid", "names", "classes", NULL };
    static const char *const harmless[] = { "backup", "results", "eval", "top", "labels" };
    char key[64], place[512];

    snprintf(key, sizeof key, "%.*s", (int)(word->len < sizeof key ? word->len : sizeof key - 1), word->text);
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (strcmp(key, harmless[i]) == 0)
            return;
    snprintf(place, sizeof place, "%.400s, line %lld", path, (long long)word->number);
    problems_note_key(m->problems, place, "key", key, ours);
}

/* Blanks inside of a value belong to it; those at its ends do not. */
static int put_line(struct labels_maker *m, const char *path, struct data_file *d, const struct text_line *line)
{
    const char *equals = memchr(line->text, '=', line->len), *end = line->text + line->len;
    struct {
        const char *key;
        char *value;
    } keys[] = { { "train", d->train }, { "valid", d->valid }, { "names", d->names }, { "classes", d->classes } };
    struct text_line before, key, value, rest;

    if (line->text[0] == '#' || line->text[0] == ';')
        return 0;
    if (!equals)
        return err_set(m->err, ERR_DATA, "%s, line %lld: should be KEY = VALUE", path, (long long)line->number);
    before = (struct text_line){ line->text, (size_t)(equals - line->text), line->number };
    rest = (struct text_line){ equals + 1, (size_t)(end - equals - 1), line->number };
    if (!text_word(&before, &key))
        return err_set(m->err, ERR_DATA, "%s, line %lld: should be KEY = VALUE", path, (long long)line->number);
    value = rest;
    if (text_word(&rest, &value))
        value.len = (size_t)(end - value.text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].key) != key.len || memcmp(keys[i].key, key.text, key.len) != 0)
            continue;
        if (value.len == 0 || value.len > VALUE_MAX || *keys[i].value)
            return err_set(m->err, ERR_DATA, "%s, line %lld: %s", path, (long long)line->number,
                           *keys[i].value ? "stands here a second time"
                           : value.len    ? "is too long"
                                          : "has no value");
        memcpy(keys[i].value, value.text, value.len);
        return 0;
    }
    tell_unknown(m, path, &key);
    return 0;
}

static int read_data(struct labels_maker *m, struct data_file *ret)
{
    const char *path = m->opt->annotations;
    struct text_lines l;
    struct text_line line;
    int rc = labels_make_file(m, path, DATA_MAX_BYTES, true);

    memset(ret, 0, sizeof *ret);
    if (rc < 0)
        return rc;
    text_lines_open(&l, path, m->file.bytes, m->file.size);
    while ((rc = text_lines_next(&l, &line, m->err)) > 0)
        if ((rc = put_line(m, path, ret, &line)) < 0)
            return rc;
    return rc;
}

/* The folder that paths are relative to. */
static int root_of(struct labels_maker *m, const char *list, char root[DATASET_MAX_PATH])
{
    char folder[DATASET_MAX_PATH], path[DATASET_MAX_PATH];
    struct stat st;

    label_path_folder(m->opt->annotations, folder);
    if (m->opt->images)
        return label_path(".", m->opt->images, root) ? 0 : err_set(m->err, ERR_DATA, "%s: path too long", m->opt->images);
    label_path(".", folder, root);
    if (label_path(root, list, path) && stat(path, &st) == 0)
        return 0;
    if (label_path(folder, "..", root) && label_path(root, list, path) && stat(path, &st) == 0)
        return 0;
    if (label_path(folder, "obj_train_data", path) && stat(path, &st) == 0)
        return err_set(
            m->err, -ENOENT,
            "%s: an archive of CVAT in the form YOLO 1.1: its paths begin with data/, a folder that it lacks. Move everything but obj.data "
            "into a folder data beside it, or export \"Ultralytics YOLO Detection\" there and give its data.yaml",
            m->opt->annotations);
    return err_set(
        m->err, -ENOENT,
        "%s: its list '%.200s' is neither in the file's own folder nor in that above; data.train.images (data.val.images) says where",
        m->opt->annotations, list);
}

static int check_classes(struct labels_maker *m, const char *classes)
{
    double n;

    if (!*classes || (text_number(&(struct text_line){ classes, strlen(classes), 0 }, &n) && n == m->names.n))
        return 0;
    return err_set(m->err, ERR_DATA, "%s: classes is %.40s, but there are %d names", m->opt->annotations, classes, m->names.n);
}

static int open_data(struct labels_maker *m)
{
    char root[DATASET_MAX_PATH], path[DATASET_MAX_PATH];
    const char *key = m->opt->val ? "valid" : "train", *list;
    struct data_file d;
    int rc = read_data(m, &d);

    if (rc < 0)
        return rc;
    list = m->opt->val ? d.valid : d.train;
    if (!*list)
        return err_set(m->err, ERR_DATA, "%s: there is no '%s = LIST'", m->opt->annotations, key);
    if (!*d.names && m->names.n == 0)
        return err_set(m->err, ERR_DATA, "%s: there is no 'names = FILE', and no data.names", m->opt->annotations);
    rc = root_of(m, list, root);
    if (rc == 0 && m->names.n == 0)
        rc = label_path(root, d.names, path) ? labels_make_names(m, path)
                                             : err_set(m->err, ERR_DATA, "%s: path too long", m->opt->annotations);
    if (rc == 0)
        rc = check_classes(m, d.classes);
    if (rc < 0)
        return rc;
    return label_path(root, list, path) ? labels_text_list(m, path, root)
                                        : err_set(m->err, ERR_DATA, "%s: path too long", m->opt->annotations);
}

static int open_list(struct labels_maker *m)
{
    char folder[DATASET_MAX_PATH];

    if (m->names.n == 0)
        return err_set(m->err, ERR_DATA, "%s: is a list, not a .data file, so data.names must give the names of its classes",
                       m->opt->annotations);
    label_path_folder(m->opt->annotations, folder);
    return labels_text_list(m, m->opt->annotations, m->opt->images ? m->opt->images : folder);
}

static int open_darknet(struct labels_maker *m)
{
    size_t len = strlen(m->opt->annotations);

    return len > 5 && strcasecmp(m->opt->annotations + len - 5, ".data") == 0 ? open_data(m) : open_list(m);
}

const struct labels_kind labels_darknet = { open_darknet, labels_text_take, labels_text_end };
