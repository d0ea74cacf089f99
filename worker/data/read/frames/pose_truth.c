#include "worker/data/read/frames/pose_truth.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/dataset.h"
#include "worker/data/text/whole_file.h"

/* A file of poses and the frames that it belongs to. */
struct way {
    const char *file;              /* borrowed from the data set */
    char frames[DATASET_MAX_PATH]; /* the start of these frames' names */
    struct poses poses;
};

struct pose_truth {
    const struct dataset *d;
    int view, n;
    struct way way[]; /* [n] */
};

/* Length of the folder's name, with the slash. -1: this is not a file of poses. */
static int folder_of(const char *file)
{
    size_t n = strlen(file), name = strlen(POSES_FILE);
    bool is = n >= name && strcmp(file + n - name, POSES_FILE) == 0 && (n == name || file[n - name - 1] == '/');

    return is ? (int)(n - name) : -1;
}

static int count_files(const struct views *v)
{
    int n = 0;

    for (int i = 0; v && i < v->nfiles; i++)
        n += folder_of(v->files[i].file) >= 0;
    return n;
}

int pose_truth_view(const struct dataset *d)
{
    const struct views *v = d->views;
    int next = -1;

    for (int k = 0; count_files(v) > 0 && k < v->nsources; k++)
        if (v->source[k] > VIEWS_STEREO && (next < 0 || v->source[k] < v->source[next]))
            next = k;
    return next;
}

static int read_way(const struct dataset *d, const struct views_file *of, struct way *ret, struct err *err)
{
    struct whole_file f = { 0 };
    struct hash128 now;
    char path[DATASET_MAX_PATH];
    int folder = folder_of(of->file), n = snprintf(path, sizeof path, "%s/%s", d->folder, of->file), rc;

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ERR_DATA, "%.200s...: path too long", d->folder);
    ret->file = of->file;
    /* several sequences: the folder of the left camera; one sequence: all frames, for any pattern */
    snprintf(ret->frames, sizeof ret->frames, folder ? "%.*sframes/" : "%.*s", folder, of->file);
    rc = whole_file_read(&f, path, POSES_MAX_BYTES, err);
    if (rc >= 0) {
        now = hash_bytes(f.bytes, f.size, 0);
        rc = (int64_t)f.size == of->size_bytes && memcmp(&now, &of->hash, sizeof now) == 0
                 ? poses_parse(path, (const char *)f.bytes, f.size, &ret->poses, err)
                 : err_set(err, ERR_DATA, "%s: has changed since the data set was checked", path);
    }
    free(f.bytes);
    return rc;
}

int pose_truth_open(const struct dataset *d, struct pose_truth **ret, struct err *err)
{
    const struct views *v = d->views;
    struct pose_truth *t = calloc(1, sizeof *t + (size_t)count_files(v) * sizeof *t->way);
    int rc = 0;

    if (!t)
        return err_set(err, -ENOMEM, "%s: no memory for poses", d->source);
    t->d = d;
    t->view = pose_truth_view(d);
    for (int i = 0; v && i < v->nfiles && rc >= 0; i++)
        if (folder_of(v->files[i].file) >= 0)
            rc = read_way(d, &v->files[i], &t->way[t->n++], err);
    if (rc < 0)
        pose_truth_close(t);
    else
        *ret = t;
    return rc;
}

void pose_truth_close(struct pose_truth *t)
{
    for (int i = 0; t && i < t->n; i++)
        poses_free(&t->way[i].poses);
    free(t);
}

/* b's inverse times a. Both map points of their camera to the world. */
static void motion_of(const double a[POSES_NUMBERS], const double b[POSES_NUMBERS], double ret[POSES_NUMBERS])
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 4; j++) {
            double sum = 0;

            for (int k = 0; k < 3; k++)
                sum += b[4 * k + i] * (j < 3 ? a[4 * k + j] : a[4 * k + 3] - b[4 * k + 3]);
            ret[4 * i + j] = sum;
        }
}

/* NULL: the image's sequence has no poses. */
static const struct way *way_of(const struct pose_truth *t, int image)
{
    const char *file = t->d->images[image].file;

    for (int i = 0; i < t->n; i++)
        if (strncmp(file, t->way[i].frames, strlen(t->way[i].frames)) == 0)
            return &t->way[i];
    return NULL;
}

bool pose_truth_motion(void *of, int image, double ret[POSES_NUMBERS], int *ret_next)
{
    const struct pose_truth *t = of;
    const struct views *v = t->d->views;
    const struct view *view;
    const struct way *w;
    size_t number, next;

    if (t->view < 0 || image < 0 || image >= v->n)
        return false;
    view = &v->view[image];
    number = (size_t)view->number;
    next = number + (size_t)v->source[t->view];
    if (view->source[t->view] == image)
        return false;
    w = way_of(t, image);
    if (!w || next >= w->poses.n)
        return false;
    motion_of(w->poses.pose[number], w->poses.pose[next], ret);
    *ret_next = view->source[t->view];
    return true;
}

int pose_truth_lacking(const struct dataset *d, int *ret_count, char text[POSE_TRUTH_TEXT], struct err *err)
{
    int view = pose_truth_view(d), rc, n = 0, next, used;
    const struct way *ends = NULL;
    double motion[POSES_NUMBERS];
    struct pose_truth *t;

    *ret_count = 0;
    if (view < 0)
        return 0;
    rc = pose_truth_open(d, &t, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < d->views->n; i++) {
        bool lacks = d->views->view[i].source[view] != i && !pose_truth_motion(t, i, motion, &next);

        n += lacks;
        ends = lacks && !ends ? way_of(t, i) : ends;
    }
    used = snprintf(text, POSE_TRUTH_TEXT, "%d of %d targets have no pose of theirs and of the next frame in " POSES_FILE, n, d->views->n);
    if (ends)
        snprintf(text + used, POSE_TRUTH_TEXT - (size_t)used, ": '%.160s/%.160s' has %zu pose%s", d->folder, ends->file, ends->poses.n,
                 ends->poses.n == 1 ? "" : "s");
    pose_truth_close(t);
    *ret_count = n;
    return 0;
}
