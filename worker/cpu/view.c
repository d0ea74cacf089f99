/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/view.c - pictures in the form that networks read, channels that
 * become pixels. */
#include "worker/kernels/view.h"

#include "worker/cpu/elem.h"
#include "worker/cpu/rows.h"

/* ---- pictures ---- */

struct picture_args {
    struct tensor *y;
    const struct tensor *x;
    const int32_t *const *size;
    const struct view_colours *colours;
};

static size_t lines(const void *arg, int v)
{
    const struct picture_args *a = arg;

    return (size_t)a->y[v].n * (size_t)a->y[v].h;
}

KERNEL_FN void line(const struct picture_args *a, int v, size_t row, bool half)
{
    const struct tensor *y = &a->y[v];
    const int32_t whole[2] = { y->h, y->w }, *size = a->size ? a->size[v] + 2 * (row / (size_t)y->h) : whole;
    const uint8_t *from = (const uint8_t *)a->x[v].data + row * (size_t)y->w * 3;
    void *to = elem_row(y, row * (size_t)y->w, half);
    int inside = (int)(row % (size_t)y->h) >= size[0] ? 0 : size[1] < y->w ? size[1] : y->w;

    for (int x = 0; x < y->w; x++, from += 3, to = elem_at(to, y->stride, half))
        for (int k = 0; k < 3; k++)
            elem_set(to, k, x < inside ? view_colour(a->colours, from, k) : 0.0f, half);
}

static void picture_part(const void *arg, int v, size_t from, size_t to)
{
    const struct picture_args *a = arg;

    for (size_t row = from; row < to; row++)
        ELEM_CALL(a->y[v].dtype, line, a, v, row);
}

int cpu_view_normalise(struct device *dev, struct tensor *y, const struct tensor *x, const int32_t *const *size,
                       const struct view_colours *colours, int nshards, struct err *err)
{
    struct picture_args a = { y, x, size, colours };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, lines, picture_part, &a });
    return 0;
}

/* ---- shuffle ---- */

struct shuffle_args {
    struct tensor *dst;
    const struct tensor *src;
    const float *bias;
    float beta;
};

/* Pixels of the small side. */
static size_t small_fwd(const void *arg, int v)
{
    return cpu_pixels(&((const struct shuffle_args *)arg)->src[v]);
}

static size_t small_bwd(const void *arg, int v)
{
    return cpu_pixels(&((const struct shuffle_args *)arg)->dst[v]);
}

KERNEL_FN void *quarter_of(const struct tensor *small, const struct tensor *large, size_t pixel, int q, bool half)
{
    size_t image = pixel / ((size_t)small->h * (size_t)small->w), at = pixel % ((size_t)small->h * (size_t)small->w);
    size_t to =
        image * (size_t)large->h * (size_t)large->w + view_quarter((int)(at / (size_t)small->w), (int)(at % (size_t)small->w), small->w, q);

    return elem_row(large, to, half);
}

KERNEL_FN void fwd_pixels(const struct shuffle_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *x = &a->src[v], *y = &a->dst[v];

    for (size_t p = from; p < to; p++)
        for (int q = 0; q < 4; q++) {
            const void *src = elem_at(elem_row(x, p, half), (ptrdiff_t)q * y->c, half);
            void *dst = quarter_of(x, y, p, q, half);

            CPU_LANES
            for (int k = 0; k < y->c; k++)
                elem_set(dst, k, a->bias ? elem_get(src, k, half) + a->bias[k] : elem_get(src, k, half), half);
        }
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct shuffle_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, fwd_pixels, a, v, from, to);
}

KERNEL_FN void bwd_pixels(const struct shuffle_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *dx = &a->dst[v], *dy = &a->src[v];

    for (size_t p = from; p < to; p++)
        for (int q = 0; q < 4; q++) {
            const void *src = quarter_of(dx, dy, p, q, half);
            void *dst = elem_at(elem_row(dx, p, half), (ptrdiff_t)q * dy->c, half);

            CPU_LANES
            for (int k = 0; k < dy->c; k++)
                elem_store(a->beta, dst, k, elem_get(src, k, half), half);
        }
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct shuffle_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, bwd_pixels, a, v, from, to);
}

int cpu_view_shuffle_fwd(struct device *dev, struct tensor *y, const struct tensor *x, const float *bias, int nshards, struct err *err)
{
    struct shuffle_args a = { y, x, bias, 0 };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, small_fwd, fwd_part, &a });
    return 0;
}

int cpu_view_shuffle_bwd(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    struct shuffle_args a = { dx, dy, NULL, beta };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, small_bwd, bwd_part, &a });
    return 0;
}
