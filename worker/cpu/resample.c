/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/resample.c - nearest-neighbour upsampling, with or without
 * mirrored pixels at the edges. */
#include "worker/kernels/resample.h"

#include <string.h>

#include "worker/cpu/elem.h"
#include "worker/cpu/rows.h"

struct upsample_args {
    int factor;
    float beta;
    struct tensor *dst;
    const struct operand *x;
    const struct tensor *dy;
};

static size_t rows(const void *arg, int v)
{
    const struct upsample_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)a->dst[v].h;
}

/* Copies a pixel and applies its pending operation. */
KERNEL_FN void copy_pixel(void *dst, const void *src, const struct affine *p, int c, bool half)
{
    if (!p->scale) {
        memcpy(dst, src, (size_t)c * (half ? sizeof(uint16_t) : sizeof(float)));
        return;
    }
    CPU_LANES
    for (int k = 0; k < c; k++)
        elem_set(dst, k, act_pending(elem_get(src, k, half), p->scale[k], p->shift[k], p->slope[k]), half);
}

KERNEL_FN void fwd_lines(const struct upsample_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *y = &a->dst[v], *t = &a->x[v].x;
    const struct affine *p = &a->x[v].act;

    for (size_t r = from; r < to; r++) {
        size_t src_row = r / (size_t)y->h * (size_t)t->h + r % (size_t)y->h / (size_t)a->factor;

        for (int ox = 0; ox < y->w; ox++)
            copy_pixel(elem_row(y, r * (size_t)y->w + (size_t)ox, half),
                       elem_row(t, src_row * (size_t)t->w + (size_t)(ox / a->factor), half), p, y->c, half);
    }
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct upsample_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, fwd_lines, a, v, from, to);
}

int cpu_resample_upsample_fwd(struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct upsample_args a = { .factor = factor, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, fwd_part, &a });
    return 0;
}

/* The channels of input pixel (y, x); its outputs are in an image with rows of ow pixels. factor is a constant at every
 * call that matters. The sum is that of upsample_grad(). */
KERNEL_FN void bwd_pixel(void *dx, float beta, const void *dy, int stride, int ow, int factor, int y, int x, int c, bool half)
{
    CPU_LANES
    for (int k = 0; k < c; k++) {
        float sum = 0.0f;

        for (int i = 0; i < factor; i++)
            for (int j = 0; j < factor; j++)
                sum += elem_get(dy, ((ptrdiff_t)(y * factor + i) * ow + (x * factor + j)) * stride + k, half);
        elem_store(beta, dx, k, sum, half);
    }
}

KERNEL_FN void bwd_lines(const struct upsample_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];

    for (size_t r = from; r < to; r++) {
        const void *image = elem_row(dy, r / (size_t)dx->h * (size_t)dy->h * (size_t)dy->w, half);
        int y = (int)(r % (size_t)dx->h);

        for (int x = 0; x < dx->w; x++) {
            void *dst = elem_row(dx, r * (size_t)dx->w + (size_t)x, half);

            if (a->factor != 2)
                bwd_pixel(dst, a->beta, image, dy->stride, dy->w, a->factor, y, x, dx->c, half);
            else if (a->beta != 0.0f)
                bwd_pixel(dst, a->beta, image, dy->stride, dy->w, 2, y, x, dx->c, half);
            else
                bwd_pixel(dst, 0.0f, image, dy->stride, dy->w, 2, y, x, dx->c, half);
        }
    }
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct upsample_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, bwd_lines, a, v, from, to);
}

int cpu_resample_upsample_bwd(struct device *dev, int factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                              struct err *err)
{
    struct upsample_args a = { .factor = factor, .beta = beta, .dst = dx, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, bwd_part, &a });
    return 0;
}

/* ---- mirrored ---- */

struct mirror_args {
    const struct mirror *m;
    float beta;
    struct tensor *dst;
    const struct operand *x;
    const struct tensor *dy;
};

static size_t mirror_rows(const void *arg, int v)
{
    const struct mirror_args *a = arg;

    return (size_t)a->dst[v].n * (size_t)a->dst[v].h;
}

KERNEL_FN void mirror_lines(const struct mirror_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *y = &a->dst[v], *t = &a->x[v].x;
    const struct affine *p = &a->x[v].act;

    for (size_t r = from; r < to; r++) {
        size_t row = r / (size_t)y->h * (size_t)t->h + (size_t)mirror_source(a->m, t->h, (int)(r % (size_t)y->h));

        for (int ox = 0; ox < y->w; ox++)
            copy_pixel(elem_row(y, r * (size_t)y->w + (size_t)ox, half),
                       elem_row(t, row * (size_t)t->w + (size_t)mirror_source(a->m, t->w, ox), half), p, y->c, half);
    }
}

static void mirror_fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct mirror_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, mirror_lines, a, v, from, to);
}

int cpu_resample_mirror_fwd(struct device *dev, const struct mirror *m, struct tensor *y, const struct operand *x, int nshards,
                            struct err *err)
{
    struct mirror_args a = { .m = m, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, mirror_rows, mirror_fwd_part, &a });
    return 0;
}

/* The channels of one pixel from the n outputs that read it. n is a constant at every call that matters. */
KERNEL_FN void mirror_bwd_pixel(void *dx, float beta, const void *const *dy, int n, int c, bool half)
{
    CPU_LANES
    for (int k = 0; k < c; k++) {
        float sum = 0.0f;

        for (int i = 0; i < n; i++)
            sum += elem_get(dy[i], k, half);
        elem_store(beta, dx, k, sum, half);
    }
}

KERNEL_FN void mirror_back_lines(const struct mirror_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];

    for (size_t r = from; r < to; r++) {
        const void *image = elem_row(dy, r / (size_t)dx->h * (size_t)dy->h * (size_t)dy->w, half);
        int rows[MIRROR_MOST], columns[MIRROR_MOST], nrows = mirror_readers(a->m, dx->h, (int)(r % (size_t)dx->h), rows);

        for (int x = 0; x < dx->w; x++) {
            void *dst = elem_row(dx, r * (size_t)dx->w + (size_t)x, half);
            const void *of[MIRROR_MOST * MIRROR_MOST];
            int ncolumns = mirror_readers(a->m, dx->w, x, columns), n = 0;

            for (int i = 0; i < nrows; i++)
                for (int j = 0; j < ncolumns; j++)
                    of[n++] = elem_at(image, ((ptrdiff_t)rows[i] * dy->w + columns[j]) * dy->stride, half);
            if (n == 1)
                mirror_bwd_pixel(dst, a->beta, of, 1, dx->c, half);
            else if (n == 4)
                mirror_bwd_pixel(dst, a->beta, of, 4, dx->c, half);
            else
                mirror_bwd_pixel(dst, a->beta, of, n, dx->c, half);
        }
    }
}

static void mirror_bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct mirror_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, mirror_back_lines, a, v, from, to);
}

int cpu_resample_mirror_bwd(struct device *dev, const struct mirror *m, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                            struct err *err)
{
    struct mirror_args a = { .m = m, .beta = beta, .dst = dx, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, mirror_rows, mirror_bwd_part, &a });
    return 0;
}
