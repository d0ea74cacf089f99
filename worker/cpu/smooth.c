/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/smooth.c - edge-aware smoothness. Loops run along channels. */
#include "worker/kernels/smooth.h"

#include "worker/cpu/rows.h"
#include "worker/kernels/act.h"

struct smooth_args {
    const struct smoothness *s;
    struct tensor *dst; /* edges, or dx */
    const struct tensor *picture;
    const struct smooth_in *in;
    double *const *sums, *const *part;
    int c;
    const int *images;
    float beta, scale;
};

static size_t rows(const void *arg, int v)
{
    const struct tensor *t = &((const struct smooth_args *)arg)->dst[v];

    return (size_t)t->n * (size_t)t->h;
}

/* ---- edges ---- */

static void edges_part(const void *arg, int v, size_t from, size_t to)
{
    const struct smooth_args *a = arg;
    const struct tensor *e = &a->dst[v], *p = &a->picture[v];
    const double numbers = (double)a->images[v] * a->c;

    for (size_t r = from; r < to; r++) {
        size_t image = r / (size_t)e->h;
        const struct smooth_picture of = {
            (const float *)p->data + image * (size_t)p->h * (size_t)p->w * (size_t)p->stride, p->stride, p->h, p->w, e->h, e->w
        };

        for (int x = 0; x < e->w; x++)
            smooth_edges(a->s, &of, (int)(r % (size_t)e->h), x, numbers, (float *)e->data + (r * (size_t)e->w + (size_t)x) * SMOOTH_EDGES);
    }
}

int cpu_smooth_edges(struct device *dev, const struct smoothness *s, struct tensor *edge, const struct tensor *picture, int c,
                     const int *images, int nshards, struct err *err)
{
    struct smooth_args a = { .s = s, .dst = edge, .picture = picture, .c = c, .images = images };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, edges_part, &a });
    return 0;
}

/* ---- sums ---- */

static size_t map_rows(const void *arg, int v)
{
    const struct tensor *t = &((const struct smooth_args *)arg)->in->x[v];

    return (size_t)t->n * (size_t)t->h;
}

enum { BLOCK = 256 }; /* channels computed before they are added one by one */

static struct smooth_plane plane_of(const struct smooth_in *in, int v, size_t image)
{
    const struct tensor *x = &in->x[v];
    size_t pixels = (size_t)x->h * (size_t)x->w;

    return (struct smooth_plane){ (const float *)x->data + image * pixels * (size_t)x->stride,
                                  (const float *)in->edge[v].data + image * pixels * SMOOTH_EDGES, x->h, x->w, x->stride };
}

static void sum_pixel(const float *at, const struct smooth_steps *steps, const float *edge, int c, double ret[SMOOTH_SUMS])
{
    float value[BLOCK];

    ret[0] = ret[1] = 0;
    for (int first = 0; first < c; first += BLOCK) {
        int n = c - first < BLOCK ? c - first : BLOCK;

        CPU_LANES
        for (int k = 0; k < n; k++)
            value[k] = smooth_value(at + first + k, steps, edge);
        for (int k = 0; k < n; k++) {
            ret[0] += (double)value[k];
            ret[1] += (double)at[first + k];
        }
    }
}

static void sums_part(const void *arg, int v, size_t from, size_t to)
{
    const struct smooth_args *a = arg;
    const struct tensor *x = &a->in->x[v];

    for (size_t r = from; r < to; r++) {
        struct smooth_plane p = plane_of(a->in, v, r / (size_t)x->h);
        int y = (int)(r % (size_t)x->h);
        double *row = a->part[v] + r * (size_t)x->w * SMOOTH_SUMS, sum[SMOOTH_SUMS] = { 0 };

        for (int i = 0; i < x->w; i++) {
            struct smooth_steps steps = smooth_steps(&p, y, i);
            size_t pixel = (size_t)y * (size_t)x->w + (size_t)i;
            double one[SMOOTH_SUMS];

            sum_pixel(p.x + pixel * (size_t)p.stride, &steps, p.edge + pixel * SMOOTH_EDGES, x->c, one);
            sum[0] += one[0];
            sum[1] += one[1];
        }
        row[0] = sum[0]; /* the row's first sum stands for the row */
        row[1] = sum[1];
    }
}

int cpu_smooth_sums(struct device *dev, double *const *sums, double *const *part, const struct smooth_in *in, int nshards, struct err *err)
{
    struct smooth_args a = { .in = in, .part = part };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, map_rows, sums_part, &a });
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < in->x[v].n; i++) {
            size_t row = (size_t)in->x[v].w * SMOOTH_SUMS, first = (size_t)i * (size_t)in->x[v].h * row;
            double *to = sums[v] + SMOOTH_SUMS * i;

            to[0] = to[1] = 0;
            for (int y = 0; y < in->x[v].h; y++, first += row) {
                to[0] += part[v][first];
                to[1] += part[v][first + 1];
            }
        }
    return 0;
}

int cpu_smooth_loss(struct device *dev, const struct smoothness *s, double *const *ret, bool apart, double *const *sums,
                    const struct smooth_in *in, int nshards, struct err *err)
{
    int row = 0;

    (void)dev, (void)err;
    for (int v = 0; v < nshards; v++) {
        const struct tensor *x = &in->x[v];
        double pixels = (double)x->h * x->w * x->c, sum = 0;

        for (int i = 0; i < x->n; i++) {
            double one = smooth_image(s, sums[v] + SMOOTH_SUMS * i, pixels);

            if (apart)
                *ret[row++] = one;
            sum += one;
        }
        if (!apart)
            *ret[row++] = sum;
    }
    return 0;
}

/* ---- backward ---- */

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct smooth_args *a = arg;
    const struct tensor *x = &a->in->x[v], *dx = &a->dst[v];
    const double pixels = (double)x->h * x->w * x->c;

    for (size_t r = from; r < to; r++) {
        size_t image = r / (size_t)x->h;
        const double *sums = a->sums[v] + SMOOTH_SUMS * image;
        struct smooth_plane p = plane_of(a->in, v, image);
        int y = (int)(r % (size_t)x->h);

        for (int i = 0; i < x->w; i++) {
            float *to_x = (float *)dx->data + (r * (size_t)x->w + (size_t)i) * (size_t)dx->stride;
            const float *f = p.x + ((size_t)y * (size_t)x->w + (size_t)i) * (size_t)x->stride;
            struct smooth_readers of;

            smooth_readers(&p, y, i, &of);
            CPU_LANES
            for (int k = 0; k < x->c; k++)
                to_x[k] = act_store(a->beta, &to_x[k], a->scale * smooth_normalised(a->s, smooth_grad(f + k, &of), sums, pixels));
        }
    }
}

int cpu_smooth_bwd(struct device *dev, const struct smoothness *s, struct tensor *dx, float beta, float scale, double *const *sums,
                   const struct smooth_in *in, int nshards, struct err *err)
{
    struct smooth_args a = { .s = s, .dst = dx, .in = in, .sums = sums, .beta = beta, .scale = scale };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows, bwd_part, &a });
    return 0;
}
