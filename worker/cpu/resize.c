/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/resize.c - bilinear resizing, and means of whole images. */
#include "worker/kernels/resample.h"

#include "worker/cpu/elem.h"
#include "worker/cpu/rows.h"

struct resize_args {
    float beta, factor;
    struct tensor *dst;
    const struct operand *x;
    const struct tensor *dy;
};

static size_t rows(const void *arg, int v)
{
    const struct resize_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)a->dst[v].h;
}

static float read_one(const struct operand *o, const float *p, int k)
{
    return o->act.scale ? act_pending(p[k], o->act.scale[k], o->act.shift[k], o->act.slope[k]) : p[k];
}

static void fwd_row(const struct tensor *y, const struct operand *o, size_t r)
{
    const struct tensor *t = &o->x;
    struct between by = between_of(t->h, y->h, (int)(r % (size_t)y->h));
    size_t pixel = (size_t)t->stride, row = (size_t)t->w * pixel;
    const float *image = (const float *)t->data + r / (size_t)y->h * (size_t)t->h * row;
    const float *up = image + (size_t)by.lo * row, *down = image + (size_t)by.hi * row;
    float *dst = (float *)y->data + r * (size_t)y->w * (size_t)y->stride;

    for (int x = 0; x < y->w; x++, dst += y->stride) {
        struct between bx = between_of(t->w, y->w, x);
        size_t lo = (size_t)bx.lo * pixel, hi = (size_t)bx.hi * pixel;

        for (int k = 0; k < y->c; k++)
            dst[k] = between_mix(between_mix(read_one(o, up + lo, k), read_one(o, up + hi, k), bx.f),
                                 between_mix(read_one(o, down + lo, k), read_one(o, down + hi, k), bx.f), by.f);
    }
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct resize_args *a = arg;

    for (size_t r = from; r < to; r++)
        fwd_row(&a->dst[v], &a->x[v], r);
}

int cpu_resample_bilinear_fwd(struct device *dev, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct resize_args a = { .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, fwd_part, &a });
    return 0;
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct resize_args *a = arg;
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];

    for (size_t r = from; r < to; r++) {
        const float *image = (const float *)dy->data + r / (size_t)dx->h * (size_t)dy->h * (size_t)dy->w * (size_t)dy->stride;
        float *dst = (float *)dx->data + r * (size_t)dx->w * (size_t)dx->stride;

        for (int x = 0; x < dx->w; x++, dst += dx->stride)
            for (int k = 0; k < dx->c; k++)
                dst[k] = act_store(a->beta, &dst[k],
                                   bilinear_grad(image + k, dy->stride, dx->h, dx->w, dy->h, dy->w, (int)(r % (size_t)dx->h), x));
    }
}

int cpu_resample_bilinear_bwd(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    struct resize_args a = { .beta = beta, .dst = dx, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, bwd_part, &a });
    return 0;
}

/* ---- means ---- */

static size_t images(const void *arg, int v)
{
    return (size_t)((const struct resize_args *)arg)->dst[v].n;
}

KERNEL_FN void mean_images(const struct resize_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *y = &a->dst[v], *t = &a->x[v].x;
    const struct affine *act = &a->x[v].act;
    size_t pixels = (size_t)t->h * (size_t)t->w;

    for (size_t i = from; i < to; i++)
        for (int k = 0; k < y->c; k++) {
            double sum = 0;

            for (size_t p = 0; p < pixels; p++) {
                float f = elem_get(elem_row(t, i * pixels + p, half), k, half);

                sum += (double)(act->scale ? act_pending(f, act->scale[k], act->shift[k], act->slope[k]) : f);
            }
            elem_set(elem_row(y, i, half), k, mean_of(sum, pixels, a->factor), half);
        }
}

static void mean_part(const void *arg, int v, size_t from, size_t to)
{
    const struct resize_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, mean_images, a, v, from, to);
}

int cpu_resample_mean_fwd(struct device *dev, float factor, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct resize_args a = { .factor = factor, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, images, mean_part, &a });
    return 0;
}

KERNEL_FN void mean_back_images(const struct resize_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];
    size_t pixels = (size_t)dx->h * (size_t)dx->w;

    for (size_t i = from; i < to; i++)
        for (size_t p = 0; p < pixels; p++) {
            void *dst = elem_row(dx, i * pixels + p, half);
            const void *src = elem_row(dy, i, half);

            CPU_LANES
            for (int k = 0; k < dx->c; k++)
                elem_store(a->beta, dst, k, mean_of((double)elem_get(src, k, half), pixels, a->factor), half);
        }
}

static void mean_back_part(const void *arg, int v, size_t from, size_t to)
{
    const struct resize_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, mean_back_images, a, v, from, to);
}

int cpu_resample_mean_bwd(struct device *dev, float factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                          struct err *err)
{
    struct resize_args a = { .factor = factor, .beta = beta, .dst = dx, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, images, mean_back_part, &a });
    return 0;
}
