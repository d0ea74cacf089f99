#include "worker/modes/samples.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/backend/devices.h"
#include "worker/core/device.h"
#include "worker/core/file.h"
#include "worker/data/make/batch.h"
#include "worker/data/set/dataset.h"
#include "worker/data/image/image.h"
#include "worker/data/loader.h"
#include "worker/data/sample/task.h"
#include "worker/modes/datacheck.h"
#include "worker/eval/draw.h"
#include "worker/mask/rle.h"
#include "worker/models/registry.h"

enum { PATH_BYTES = 4096 + 32, NO_SCORE = 2 /* draw.h */ };

struct samples {
    const struct jobspec *spec;
    const char *folder;
    FILE *out;
    int count, done;
    struct device *dev;
    struct model *model;
    struct dataset *set;
    const char **names; /* names of its classes */
    struct task *task;
    struct loader *loader;
};

/* The objects to draw of one sample. */
struct objects {
    int n;
    struct detection *boxes;
    struct result_mask *masks; /* NULL: no masks */
};

/* ---- rows of a sample ---- */

static int list(const struct batch *b, const char *name)
{
    return batch_list_of(b->form, name);
}

/* Rows [*lo, *hi) of a list that belong to row `of` of the list above it. */
static void rows_of(const struct batch *b, const struct shard_batch *s, const char *name, int of, int *lo, int *hi)
{
    const int32_t *offset = s->offset[list(b, name)];

    *lo = offset[of];
    *hi = offset[of + 1];
}

static const void *array(const struct batch *b, const struct shard_batch *s, const char *name)
{
    int i = batch_array_of(b->form, name);

    return i < 0 ? NULL : s->array[i];
}

/* ---- pictures ---- */

/* Picture `image` of an array, as bytes. The caller frees. */
static uint8_t *pixels(const struct batch *b, const struct shard_batch *s, const char *name, int image)
{
    int i = batch_array_of(b->form, name);
    size_t n = (size_t)s->canvas.h * (size_t)s->canvas.w * 3, at = n * (size_t)image;
    uint8_t *rgb = malloc(n);

    assert(b->form->array[i].canvas && b->form->array[i].width == 3);
    if (rgb && b->form->array[i].dtype == DTYPE_U8)
        memcpy(rgb, (const uint8_t *)s->array[i] + at, n);
    for (size_t k = 0; rgb && b->form->array[i].dtype == DTYPE_F32 && k < n; k++)
        rgb[k] = (uint8_t)(((const float *)s->array[i])[at + k] * 255 + 0.5f);
    return rgb;
}

/* yolo's boxes are centres and sizes, as fractions of the canvas. R-CNN's are corners in pixels. */
static void take_boxes(const struct batch *b, const struct shard_batch *s, int lo, struct objects *o)
{
    const float(*box)[4] = array(b, s, "truth.box");
    const int32_t *cls = array(b, s, "truth.class");
    bool corners = array(b, s, "size") != NULL;

    for (int i = 0; i < o->n; i++) {
        const float *v = box[lo + i];
        double w = corners ? v[2] - v[0] : v[2] * s->canvas.w, h = corners ? v[3] - v[1] : v[3] * s->canvas.h;
        double x = corners ? v[0] : v[0] * s->canvas.w - w / 2, y = corners ? v[1] : v[1] * s->canvas.h - h / 2;

        o->boxes[i] = (struct detection){ .cls = cls[lo + i], .slot = i, .score = NO_SCORE, .box = { x, y, w, h } };
    }
}

/* The mask of object `row` from its polygons, or its runs. Empty if it has neither. */
static int read_mask(const struct batch *b, const struct shard_batch *s, int image, int row, struct rle *ret, struct err *err)
{
    const int32_t *size = (const int32_t *)array(b, s, "size") + 2 * (size_t)image, *length = array(b, s, "run.length");
    const double(*xy)[2] = array(b, s, "point.xy");
    int lo, hi, rc;

    rows_of(b, s, "polygon", row, &lo, &hi);
    if (hi > lo) {
        int64_t *first = calloc((size_t)(hi - lo) + 1, sizeof *first);
        int base = s->offset[list(b, "point")][lo];

        for (int k = lo; first && k <= hi; k++)
            first[k - lo] = s->offset[list(b, "point")][k] - base;
        rc = first ? rle_from_polygons(ret, size[0], size[1], xy + base, first, hi - lo, err) : err_set(err, ERR_DEVICE, "out of memory");
        free(first);
        return rc;
    }
    rows_of(b, s, "run", row, &lo, &hi);
    rc = rle_begin(ret, size[0], size[1], err);
    for (int k = lo; k < hi && rc >= 0; k++)
        rc = rle_add(ret, length[k], err);
    if (hi == lo && rc >= 0)
        rc = rle_add(ret, (int64_t)size[0] * size[1], err);
    return rc < 0 ? rc : rle_end(ret, err);
}

static int take_masks(const struct batch *b, const struct shard_batch *s, int image, int lo, struct objects *o, struct err *err)
{
    struct rle m = { 0 };
    int rc = 0;

    if (list(b, "polygon") < 0 || (s->rows[list(b, "polygon")] == 0 && s->rows[list(b, "run")] == 0))
        return 0;
    o->masks = calloc((size_t)o->n + 1, sizeof *o->masks);
    if (!o->masks)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < o->n && rc >= 0; i++) {
        uint8_t *bits;
        int at[4];

        rc = read_mask(b, s, image, lo + i, &m, err);
        if (rc < 0)
            break;
        rle_bounds(&m, at);
        bits = calloc((size_t)at[3] * ((size_t)(at[2] + 7) / 8) + 1, 1);
        if (!bits)
            rc = err_set(err, ERR_DEVICE, "out of memory");
        else
            rle_to_crop(&m, at[0], at[1], at[2], at[3], bits);
        o->masks[i] = (struct result_mask){ at[0], at[1], at[2], at[3], bits };
    }
    rle_free(&m);
    return rc;
}

static void objects_free(struct objects *o)
{
    for (int i = 0; o->masks && i < o->n; i++)
        free((void *)o->masks[i].bits);
    free(o->masks);
    free(o->boxes);
}

static int draw_objects(const struct samples *d, const struct batch *b, const struct shard_batch *s, int image, struct picture *p,
                        int *ret_n, struct err *err)
{
    struct objects o = { 0 };
    int lo, hi, rc;

    rows_of(b, s, "truth", image, &lo, &hi);
    *ret_n = o.n = hi - lo;
    o.boxes = calloc((size_t)o.n + 1, sizeof *o.boxes);
    if (!o.boxes)
        return err_set(err, ERR_DEVICE, "out of memory");
    take_boxes(b, s, lo, &o);
    rc = take_masks(b, s, image, lo, &o, err);
    if (rc >= 0 && o.masks)
        draw_masks(p, o.masks, o.n, 1);
    if (rc >= 0)
        rc = draw_detections(p, o.boxes, (size_t)o.n, d->names, d->set->nclasses, err);
    objects_free(&o);
    return rc;
}

/* Joins frames in a row: the target, then its sources in the order of names. *ret->rgb belongs to the caller. */
static int join_frames(const struct batch *b, const struct shard_batch *s, int image, struct picture *ret, struct err *err)
{
    size_t w = (size_t)s->canvas.w, h = (size_t)s->canvas.h;
    char name[16] = "seen";
    int n = 0;

    while (batch_array_of(b->form, name) >= 0)
        snprintf(name, sizeof name, "seen%d", n++);
    assert(n > 0); /* there is always a target */
    *ret = (struct picture){ malloc((size_t)n * w * h * 3), s->canvas.w * n, s->canvas.h };
    if (!ret->rgb)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int k = 0; k < n; k++) {
        uint8_t *one;

        snprintf(name, sizeof name, k ? "seen%d" : "seen", k - 1);
        one = pixels(b, s, name, image);
        if (!one)
            return err_set(err, ERR_DEVICE, "out of memory");
        for (size_t y = 0; y < h; y++)
            memcpy(ret->rgb + (y * (size_t)n + (size_t)k) * w * 3, one + y * w * 3, w * 3);
        free(one);
    }
    return 0;
}

/* ---- files ---- */

static int write_one(struct samples *d, const struct batch *b, const struct shard_batch *s, int image, struct err *err)
{
    bool frames = batch_array_of(b->form, "seen") >= 0;
    struct picture p = { NULL, s->canvas.w, s->canvas.h };
    char path[PATH_BYTES], from[DATASET_MAX_PATH];
    int n = 0, rc = 0;

    snprintf(path, sizeof path, "%.4000s/sample-%03d.png", d->folder, d->done + 1);
    rc = file_may_replace(path, image_is_own_png, err); /* refuse before the work */
    if (rc >= 0 && frames)
        rc = join_frames(b, s, image, &p, err);
    else if (rc >= 0 && !(p.rgb = pixels(b, s, "image", image)))
        rc = err_set(err, ERR_DEVICE, "out of memory");
    if (rc >= 0 && !frames)
        rc = draw_objects(d, b, s, image, &p, &n, err);
    if (rc >= 0)
        rc = image_write_png(path, p.rgb, p.w, p.h, err);
    free(p.rgb);
    if (rc < 0)
        return rc;
    dataset_path(d->set, task_image(d->task, s->index[image]), from);
    if (frames)
        fprintf(d->out, "step %lld, shard %d: %s, %d x %d -> %s\n", (long long)b->step, s->shard, from, s->canvas.w, s->canvas.h, path);
    else
        fprintf(d->out, "step %lld, shard %d: %s, %d x %d, %d object%s -> %s\n", (long long)b->step, s->shard, from, s->canvas.w,
                s->canvas.h, n, n == 1 ? "" : "s", path);
    d->done++;
    return 0;
}

static int draw_all(struct samples *d, struct err *err)
{
    struct batch b;
    int rc = 0;

    while (d->done < d->count && rc >= 0) {
        rc = loader_next(d->loader, &b, err);
        for (int v = 0; rc >= 0 && v < b.nshards; v++)
            for (int i = 0; i < b.shard[v].n && d->done < d->count && rc >= 0; i++)
                rc = write_one(d, &b, &b.shard[v], i, err);
        if (rc >= 0 && b.last && b.step == d->spec->train_steps)
            break;
    }
    return rc;
}

/* ---- opening ---- */

static int open_device(struct samples *d, struct err *err)
{
    const struct device_options opt = { .isa = "auto" };
    const struct device_ops *ops = NULL;
    int rc = device_backend("cpu", "auto", &ops, err);

    return rc < 0 ? rc : ops->open(0, &opt, &d->dev, err);
}

static int open_loader(struct samples *d, struct err *err)
{
    const struct jobspec *s = d->spec;
    const struct task_options of_task = { s, true, d->model->canvas, d->model->grain, 0 };
    const struct loader_options o = { .train = true,
                                      .batch = (int)s->train_batch,
                                      .shards = (int)s->train_shards,
                                      .shard_hi = (int)s->train_shards,
                                      .waves = (int)s->train_shards,
                                      .first_step = 1,
                                      .steps = s->train_steps,
                                      .on_bad = strcmp(s->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
                                      .workers = 1 };
    int rc = d->model->family->task->open(d->set, &of_task, &d->task, err);

    return rc < 0 ? rc : loader_open(d->task, &o, &d->loader, err);
}

static int open_all(struct samples *d, const struct model_registry *models, struct err *err)
{
    int rc = datacheck_train(models, d->spec, &d->set, stderr, err);

    if (rc < 0)
        return rc;
    d->names = calloc((size_t)d->set->nclasses + 1, sizeof *d->names);
    if (!d->names)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < d->set->nclasses; i++)
        d->names[i] = d->set->classes[i].name;
    rc = open_device(d, err);
    if (rc >= 0)
        rc = model_open(models, d->spec, (struct model_classes){ d->set->nclasses, NULL, d->set->classes }, d->dev, &d->model, err);
    if (rc >= 0)
        rc = open_loader(d, err);
    if (rc >= 0 && mkdir(d->folder, 0777) < 0 && errno != EEXIST)
        rc = err_sys(err, "make '%s'", d->folder);
    return rc;
}

static void close_all(struct samples *d)
{
    loader_close(d->loader);
    task_free(d->task);
    model_free(d->model);
    if (d->dev)
        d->dev->ops->close(d->dev);
    dataset_free(d->set);
    free(d->names);
}

int samples_draw(const struct model_registry *models, const struct jobspec *spec, int count, const char *folder, FILE *out, struct err *err)
{
    struct samples d = { .spec = spec, .folder = folder, .out = out, .count = count };
    int rc = open_all(&d, models, err);

    if (rc >= 0)
        rc = draw_all(&d, err);
    close_all(&d);
    return rc;
}
