/* worker/cpu/resample.c - nearest-neighbour upsampling, alone or with mirrored pixels around. */
#include "worker/kernels/resample.h"

#include <string.h>

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

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct upsample_args *a = arg;
    const struct tensor *y = &a->dst[v], *t = &a->x[v].x;
    const struct affine *p = &a->x[v].act;

    for (size_t r = from; r < to; r++) {
        size_t src_row = r / (size_t)y->h * (size_t)t->h + r % (size_t)y->h / (size_t)a->factor;

        for (int ox = 0; ox < y->w; ox++) {
            const float *src = (const float *)t->data + (src_row * (size_t)t->w + (size_t)(ox / a->factor)) * (size_t)t->stride;
            float *dst = (float *)y->data + (r * (size_t)y->w + (size_t)ox) * (size_t)y->stride;

            if (!p->scale) {
                memcpy(dst, src, (size_t)y->c * sizeof(float));
                continue;
            }
            CPU_LANES
            for (int k = 0; k < y->c; k++)
                dst[k] = act_pending(src[k], p->scale[k], p->shift[k], p->slope[k]);
        }
    }
}

int cpu_resample_upsample_fwd(struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct upsample_args a = { .factor = factor, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, fwd_part, &a });
    return 0;
}

/* Channels of one input pixel. factor is a constant where it matters; the sum is upsample_grad()'s. */
KERNEL_FN void bwd_pixel(float *dx, float beta, const float *dy, int stride, int ow, int factor, int y, int x, int c)
{
    CPU_LANES
    for (int k = 0; k < c; k++)
        dx[k] = act_store(beta, &dx[k], upsample_grad(dy + k, stride, ow, factor, y, x));
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct upsample_args *a = arg;
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];

    for (size_t r = from; r < to; r++) {
        const float *image = (const float *)dy->data + r / (size_t)dx->h * (size_t)dy->h * (size_t)dy->w * (size_t)dy->stride;
        int y = (int)(r % (size_t)dx->h);

        for (int x = 0; x < dx->w; x++) {
            float *dst = (float *)dx->data + (r * (size_t)dx->w + (size_t)x) * (size_t)dx->stride;

            if (a->factor != 2)
                bwd_pixel(dst, a->beta, image, dy->stride, dy->w, a->factor, y, x, dx->c);
            else if (a->beta != 0.0f)
                bwd_pixel(dst, a->beta, image, dy->stride, dy->w, 2, y, x, dx->c);
            else
                bwd_pixel(dst, 0.0f, image, dy->stride, dy->w, 2, y, x, dx->c);
        }
    }
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

static void mirror_fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct mirror_args *a = arg;
    const struct tensor *y = &a->dst[v], *t = &a->x[v].x;
    const struct affine *p = &a->x[v].act;

    for (size_t r = from; r < to; r++) {
        size_t row = r / (size_t)y->h * (size_t)t->h + (size_t)mirror_source(a->m, t->h, (int)(r % (size_t)y->h));

        for (int ox = 0; ox < y->w; ox++) {
            const float *src = (const float *)t->data + (row * (size_t)t->w + (size_t)mirror_source(a->m, t->w, ox)) * (size_t)t->stride;
            float *dst = (float *)y->data + (r * (size_t)y->w + (size_t)ox) * (size_t)y->stride;

            if (!p->scale) {
                memcpy(dst, src, (size_t)y->c * sizeof(float));
                continue;
            }
            CPU_LANES
            for (int k = 0; k < y->c; k++)
                dst[k] = act_pending(src[k], p->scale[k], p->shift[k], p->slope[k]);
        }
    }
}

int cpu_resample_mirror_fwd(struct device *dev, const struct mirror *m, struct tensor *y, const struct operand *x, int nshards,
                            struct err *err)
{
    struct mirror_args a = { .m = m, .dst = y, .x = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, mirror_rows, mirror_fwd_part, &a });
    return 0;
}

/* Channels of one pixel, from the n outputs that read it. n is a constant where it matters. */
KERNEL_FN void mirror_bwd_pixel(float *dx, float beta, const float *const *dy, int n, int c)
{
    CPU_LANES
    for (int k = 0; k < c; k++) {
        float sum = 0.0f;

        for (int i = 0; i < n; i++)
            sum += dy[i][k];
        dx[k] = act_store(beta, &dx[k], sum);
    }
}

static void mirror_bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct mirror_args *a = arg;
    const struct tensor *dx = &a->dst[v], *dy = &a->dy[v];

    for (size_t r = from; r < to; r++) {
        const float *image = (const float *)dy->data + r / (size_t)dx->h * (size_t)dy->h * (size_t)dy->w * (size_t)dy->stride;
        int rows[MIRROR_MOST], columns[MIRROR_MOST], nrows = mirror_readers(a->m, dx->h, (int)(r % (size_t)dx->h), rows);

        for (int x = 0; x < dx->w; x++) {
            float *dst = (float *)dx->data + (r * (size_t)dx->w + (size_t)x) * (size_t)dx->stride;
            const float *of[MIRROR_MOST * MIRROR_MOST];
            int ncolumns = mirror_readers(a->m, dx->w, x, columns), n = 0;

            for (int i = 0; i < nrows; i++)
                for (int j = 0; j < ncolumns; j++)
                    of[n++] = image + ((size_t)rows[i] * (size_t)dy->w + (size_t)columns[j]) * (size_t)dy->stride;
            if (n == 1)
                mirror_bwd_pixel(dst, a->beta, of, 1, dx->c);
            else if (n == 4)
                mirror_bwd_pixel(dst, a->beta, of, 4, dx->c);
            else
                mirror_bwd_pixel(dst, a->beta, of, n, dx->c);
        }
    }
}

int cpu_resample_mirror_bwd(struct device *dev, const struct mirror *m, struct tensor *dx, float beta, const struct tensor *dy, int nshards,
                            struct err *err)
{
    struct mirror_args a = { .m = m, .beta = beta, .dst = dx, .dy = dy };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, mirror_rows, mirror_bwd_part, &a });
    return 0;
}
