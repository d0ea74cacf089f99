/* SPDX-License-Identifier: Apache-2.0 */ /* Folders with a data.yaml. "train" and "val" are each a folder of pictures,
 * a list of pictures, or several of these. They are below "path", or below data.train.images if the job has that.
 * Without "path", or if it does not exist, they are below data.yaml's folder. A missing path that begins with ../ is
 * tried without that: some sites pack them so. The job may name such a folder or list directly and give data.names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "worker/data/read/labels/data_yaml.h"
#include "worker/data/read/labels/labels_make.h"

enum found { NOTHING, FILE_THERE, FOLDER_THERE };

static enum found look(const char *path)
{
    struct stat st;

    return stat(path, &st) < 0 ? NOTHING : S_ISDIR(st.st_mode) ? FOLDER_THERE : FILE_THERE;
}

static int too_long(struct labels_maker *m)
{
    return err_set(m->err, ERR_DATA, "%s: path too long", m->opt->annotations);
}

static int root_of(struct labels_maker *m, const struct data_yaml *y, char ret[DATASET_MAX_PATH])
{
    char folder[DATASET_MAX_PATH];

    if (m->opt->images)
        return label_path(".", m->opt->images, ret) ? 0 : too_long(m);
    label_path_folder(m->opt->annotations, folder);
    if (y->root && label_path(folder, y->root, ret) && look(ret) == FOLDER_THERE)
        return 0;
    return label_path(".", folder, ret) ? 0 : too_long(m);
}

static int read_path(struct labels_maker *m, const char *root, const char *path)
{
    char full[DATASET_MAX_PATH], other[DATASET_MAX_PATH];

    if (!label_path(root, path, full))
        return too_long(m);
    if (look(full) == NOTHING && strncmp(path, "../", 3) == 0 && label_path(root, path + 3, other) && look(other) != NOTHING)
        memcpy(full, other, sizeof full);
    switch (look(full)) {
    case FOLDER_THERE:
        return labels_text_folder(m, full);
    case FILE_THERE:
        return labels_text_list(m, full, root);
    default:
        return err_set(m->err, -ENOENT, "%s: '%.200s' is not there%s", m->opt->annotations, full,
                       m->opt->images ? "" : "; data.train.images (data.val.images) says which folder its paths are in");
    }
}

static int take_names(struct labels_maker *m, struct data_yaml *y)
{
    if (m->names.n == 0) { /* data.names overrules them */
        m->names = y->names;
        y->names = (struct label_names){ 0 };
    }
    if (m->names.n == 0)
        return err_set(m->err, ERR_DATA, "%s: there is no \"names\", and no data.names", m->opt->annotations);
    if (y->nc >= 0 && y->nc != m->names.n)
        return err_set(m->err, ERR_DATA, "%s: \"nc\" is %lld, but there are %d names", m->opt->annotations, (long long)y->nc, m->names.n);
    return 0;
}

static int open_yaml(struct labels_maker *m)
{
    const char *split = m->opt->val ? "val" : "train";
    struct data_yaml *y = calloc(1, sizeof *y);
    char root[DATASET_MAX_PATH];
    int rc;

    if (!y)
        return labels_no_memory(m);
    rc = labels_make_file(m, m->opt->annotations, YAML_MAX_BYTES, true);
    if (rc == 0)
        rc = data_yaml_parse(m->opt->annotations, m->file.bytes, m->file.size, split, y, m->problems, m->err);
    if (rc == 0 && y->npaths == 0)
        rc = err_set(m->err, ERR_DATA, "%s: there is no \"%s\"", m->opt->annotations, split);
    m->columns.points = y->points;
    if (rc == 0)
        rc = take_names(m, y);
    if (rc == 0)
        rc = root_of(m, y, root);
    for (int i = 0; rc == 0 && i < y->npaths; i++)
        rc = read_path(m, root, y->path[i]);
    data_yaml_free(y);
    free(y);
    return rc;
}

static bool is_yaml(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0);
}

static int open_yolo(struct labels_maker *m)
{
    char folder[DATASET_MAX_PATH];

    if (look(m->opt->annotations) != FOLDER_THERE && is_yaml(m->opt->annotations))
        return open_yaml(m);
    m->columns.points = -1;
    if (m->names.n == 0)
        return err_set(m->err, ERR_DATA, "%s: is not a data.yaml, so data.names must give the names of its classes", m->opt->annotations);
    label_path_folder(m->opt->annotations, folder);
    return read_path(m, m->opt->images ? m->opt->images : folder, m->opt->annotations);
}

const struct labels_kind labels_yolo = { open_yolo, labels_text_take, labels_text_end };
