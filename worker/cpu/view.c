/* worker/cpu/view.c - pictures as the network reads them, channels that become pixels. */
#include "worker/kernels/view.h"

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

static void line(const struct picture_args *a, int v, size_t row)
{
    const struct tensor *y = &a->y[v];
    const int32_t whole[2] = { y->h, y->w }, *size = a->size ? a->size[v] + 2 * (row / (size_t)y->h) : whole;
    const uint8_t *from = (const uint8_t *)a->x[v].data + row * (size_t)y->w * 3;
    float *to = (float *)y->data + row * (size_t)y->w * (size_t)y->stride;
    int inside = (int)(row % (size_t)y->h) >= size[0] ? 0 : size[1] < y->w ? size[1] : y->w;

    for (int x = 0; x < y->w; x++, from += 3, to += y->stride)
        for (int k = 0; k < 3; k++)
            to[k] = x < inside ? view_colour(a->colours, from, k) : 0.0f;
}

static void picture_part(const void *arg, int v, size_t from, size_t to)
{
    for (size_t row = from; row < to; row++)
        line(arg, v, row);
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

/* Of the small side. */
static size_t small_fwd(const void *arg, int v)
{
    return cpu_pixels(&((const struct shuffle_args *)arg)->src[v]);
}

static size_t small_bwd(const void *arg, int v)
{
    return cpu_pixels(&((const struct shuffle_args *)arg)->dst[v]);
}

static float *quarter_of(const struct tensor *small, const struct tensor *large, size_t pixel, int q)
{
    size_t image = pixel / ((size_t)small->h * (size_t)small->w), at = pixel % ((size_t)small->h * (size_t)small->w);
    size_t to =
        image * (size_t)large->h * (size_t)large->w + view_quarter((int)(at / (size_t)small->w), (int)(at % (size_t)small->w), small->w, q);

    return (float *)large->data + to * (size_t)large->stride;
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct shuffle_args *a = arg;
    const struct tensor *x = &a->src[v], *y = &a->dst[v];

    for (size_t p = from; p < to; p++)
        for (int q = 0; q < 4; q++) {
            const float *src = (const float *)x->data + p * (size_t)x->stride + (size_t)q * (size_t)y->c;
            float *dst = quarter_of(x, y, p, q);

            CPU_LANES
            for (int k = 0; k < y->c; k++)
                dst[k] = a->bias ? src[k] + a->bias[k] : src[k];
        }
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct shuffle_args *a = arg;
    const struct tensor *dx = &a->dst[v], *dy = &a->src[v];

    for (size_t p = from; p < to; p++)
        for (int q = 0; q < 4; q++) {
            const float *src = quarter_of(dx, dy, p, q);
            float *dst = (float *)dx->data + p * (size_t)dx->stride + (size_t)q * (size_t)dy->c;

            CPU_LANES
            for (int k = 0; k < dy->c; k++)
                dst[k] = act_store(a->beta, &dst[k], src[k]);
        }
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
