#include "worker/data/read/frames/depth_truth.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"
#include "worker/data/text/whole_file.h"

enum { LASER_MAX_BYTES = 64 << 20, LASER_POINT = 4 * sizeof(float) };

struct depth_truth {
    const struct dataset *d;
    struct whole_file file;
    float *metres;
    uint16_t *grey;
    size_t room; /* pixels that metres and grey have room for */
};

bool depth_truth_any(const struct dataset *d)
{
    return d->views && views_measured(d->views) > 0;
}

bool depth_truth_nowhere(const struct dataset *d, char text[DEPTH_TRUTH_TEXT])
{
    const struct views *v = d->views;

    if (!v || !v->depth_pattern[0] || v->n == 0 || views_measured(v) > 0)
        return false;
    snprintf(text, DEPTH_TRUTH_TEXT, "no target of %d has measured depth: no file matches '%.200s/%.200s'", v->n, d->folder,
             v->depth_pattern);
    return true;
}

int depth_truth_open(const struct dataset *d, struct depth_truth **ret, struct err *err)
{
    struct depth_truth *t = calloc(1, sizeof *t);

    if (!t)
        return err_set(err, -ENOMEM, "%s: no memory for measured depth", d->source);
    t->d = d;
    *ret = t;
    return 0;
}

void depth_truth_close(struct depth_truth *t)
{
    if (!t)
        return;
    free(t->file.bytes);
    free(t->metres);
    free(t->grey);
    free(t);
}

static int make_room(struct depth_truth *t, size_t pixels, struct err *err)
{
    if (pixels <= t->room)
        return 0;
    free(t->metres);
    free(t->grey);
    t->metres = malloc(pixels * sizeof *t->metres);
    t->grey = malloc(pixels * sizeof *t->grey);
    t->room = t->metres && t->grey ? pixels : 0;
    return t->room ? 0 : err_set(err, -ENOMEM, "%s: no memory for measured depth", t->d->source);
}

/* Projects points onto the picture's pixels; on each pixel the nearest point stays. Depth is the distance ahead of the
 * laser, as in evaluations of this data set. Source: specs featdepth section 4.6, but without the keys there that
 * pixels of two rows share. */
static void project(const double p[12], const uint8_t *bytes, size_t npoints, int w, int h, float *metres)
{
    memset(metres, 0, (size_t)w * (size_t)h * sizeof *metres);
    for (size_t i = 0; i < npoints; i++) {
        float point[4], *pixel;
        double q[3], x, y;

        memcpy(point, bytes + i * LASER_POINT, sizeof point);
        if (!(point[0] >= 0) || !isfinite(point[0]))
            continue;
        for (int k = 0; k < 3; k++)
            q[k] = p[k * 4] * point[0] + p[k * 4 + 1] * point[1] + p[k * 4 + 2] * point[2] + p[k * 4 + 3];
        x = nearbyint(q[0] / q[2]) - 1;
        y = nearbyint(q[1] / q[2]) - 1;
        if (!(x >= 0 && x < w && y >= 0 && y < h))
            continue;
        pixel = &metres[(size_t)y * (size_t)w + (size_t)x];
        if (*pixel <= 0 || point[0] < *pixel)
            *pixel = point[0];
    }
}

/* Puts the file's name in t->file and its depth in t->metres. */
static int read_depth(struct depth_truth *t, int image, char path[DATASET_MAX_PATH], struct err *err)
{
    const struct dataset_image *im = &t->d->images[image];
    const struct view *view = &t->d->views->view[image];
    size_t pixels = (size_t)im->w * (size_t)im->h;
    bool laser = view->laser >= 0;
    int n = snprintf(path, DATASET_MAX_PATH, "%s/%s", t->d->folder, t->d->views->files[view->depth].file), rc;

    if (n < 0 || n >= DATASET_MAX_PATH)
        return err_set(err, ERR_DATA, "%.200s...: path too long", t->d->folder);
    rc = make_room(t, pixels, err);
    if (rc >= 0)
        rc = whole_file_read(&t->file, path, laser ? LASER_MAX_BYTES : IMAGE_MAX_BYTES, err);
    if (rc < 0)
        return rc;
    if (laser && t->file.size % LASER_POINT)
        return err_set(err, ERR_DATA, "%s: %zu bytes are no points of %zu bytes each", path, t->file.size, (size_t)LASER_POINT);
    if (laser) {
        project(t->d->views->lasers[view->laser].p, t->file.bytes, t->file.size / LASER_POINT, im->w, im->h, t->metres);
        return 0;
    }
    rc = image_grey16(path, t->file.bytes, t->file.size, im->w, im->h, t->grey, err);
    for (size_t i = 0; i < pixels && rc >= 0; i++)
        t->metres[i] = (float)(t->grey[i] * t->d->views->depth_unit_m);
    return rc;
}

int depth_truth_look(struct depth_truth *t, int image, struct views_file *ret_file, struct err *err)
{
    char path[DATASET_MAX_PATH];
    int rc = read_depth(t, image, path, err);

    if (rc < 0)
        return rc;
    ret_file->size_bytes = (int64_t)t->file.size;
    ret_file->mtime_ns = t->file.mtime_ns;
    ret_file->hash = hash_bytes(t->file.bytes, t->file.size, 0);
    return 0;
}

int depth_truth_read(struct depth_truth *t, int image, struct depth_map *ret, struct err *err)
{
    const struct views *v = t->d->views;
    const struct views_file *f;
    struct depth_map none = { 0 };
    struct hash128 now;
    char path[DATASET_MAX_PATH];
    int rc;

    *ret = none;
    if (!v || image < 0 || image >= v->n || v->view[image].depth < 0)
        return 0;
    f = &v->files[v->view[image].depth];
    rc = read_depth(t, image, path, err);
    if (rc < 0)
        return rc;
    now = hash_bytes(t->file.bytes, t->file.size, 0);
    if ((int64_t)t->file.size != f->size_bytes || memcmp(&now, &f->hash, sizeof now) != 0)
        return err_set(err, ERR_DATA, "%s: has changed since the data set was checked", path);
    *ret = (struct depth_map){ t->d->images[image].w, t->d->images[image].h, t->metres };
    return 0;
}
