/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv.c - the convolution ops, which give runs of equal shards
 * together to the path of their shape; and the bias gradient. */
#include "worker/cpu/conv.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/rows.h"

/* Only the images in use, of a shard whose number of them depends on the data. If every pixel is an image, the pixels
 * become one row, so that the paths can take larger pieces. */
static struct tensor in_use(const struct tensor *t)
{
    struct tensor u = *t;

    u.n = tensor_rows(t);
    u.rows = NULL;
    if (u.h == 1 && u.w == 1) {
        u.w = u.n;
        u.n = u.n > 0;
    }
    return u;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->c == b->c && !a->rows && !b->rows;
}

/* The number of shards from v on that have v's shapes. */
static int equal_shards(const struct conv_call *q, int v)
{
    int n = 1;

    while (v + n < q->nshards && (!q->x || same_shape(&q->x[v].x, &q->x[v + n].x)) && (!q->y || same_shape(&q->y[v], &q->y[v + n])) &&
           (!q->dy || same_shape(&q->dy[v], &q->dy[v + n])) && (!q->norm || same_shape(&q->norm->x[v].x, &q->norm->x[v + n].x)))
        n++;
    return n;
}

static bool is_wino(const struct conv_call *q)
{
    return q->r == 3 && q->s == 3 && q->stride == 1 && (q->y ? q->y : conv_dy(q, 0))->dtype == DTYPE_F32;
}

typedef int path(const struct conv_call *q, struct err *err);

static int fwd(const struct conv_call *q, struct err *err)
{
    const struct tensor *y = q->y;

    return is_wino(q) && wino_fits(y->h, y->w, q->x->x.c, y->c) ? wino_conv_fwd(q, err) : rows_conv_fwd(q, err);
}

static int bwd_data(const struct conv_call *q, struct err *err)
{
    const struct tensor *dx = q->y;

    return is_wino(q) && wino_fits(dx->h, dx->w, q->dy->c, dx->c) ? wino_conv_bwd_data(q, err) : rows_conv_bwd_data(q, err);
}

static int bwd_weights(const struct conv_call *q, struct err *err)
{
    const struct tensor *dy = conv_dy(q, 0);

    return is_wino(q) && wino_fits(dy->h, dy->w, q->x->x.c, dy->c) ? wino_conv_bwd_weights(q, err) : rows_conv_bwd_weights(q, err);
}

/* Handles shards without an image in use. */
static void nothing(const struct conv_call *q)
{
    if (q->dw && q->beta == 0.0f)
        memset(q->dw[0], 0, (size_t)q->r * (size_t)q->s * (size_t)q->x->x.c * (size_t)q->dy->c * sizeof(float));
}

/* q is of one shard. */
static int run_in_use(const struct conv_call *q, path *run, struct err *err)
{
    struct conv_call one = *q;
    struct tensor y = { 0 }, dy = { 0 };
    struct operand x;

    if (q->x) {
        x = (struct operand){ in_use(&q->x->x), q->x->act };
        one.x = &x;
    }
    if (q->y) {
        y = in_use(q->y);
        one.y = &y;
    }
    if (q->dy) {
        dy = in_use(q->dy);
        one.dy = &dy;
    }
    if ((q->y ? y.n : dy.n) > 0)
        return run(&one, err);
    nothing(q);
    return 0;
}

static struct norm_grad norm_of_shards(const struct norm_grad *all, int v)
{
    return (struct norm_grad){
        all->da + v, all->x + v, all->mean + v, all->invstd + v, all->sums ? all->sums + v : NULL, all->stats ? all->stats + v : NULL
    };
}

static int over_shards(const struct conv_call *all, path *run, struct err *err)
{
    for (int v = 0, n; v < all->nshards; v += n) {
        struct conv_call q = *all;
        struct norm_grad norm;
        int rc;

        n = equal_shards(all, v);
        q.nshards = n;
        q.x = all->x ? all->x + v : NULL;
        q.y = all->y ? all->y + v : NULL;
        q.dy = all->dy ? all->dy + v : NULL;
        q.dw = all->dw ? all->dw + v : NULL;
        q.stats = all->stats ? all->stats + v : NULL;
        if (all->norm) {
            norm = norm_of_shards(all->norm, v);
            q.norm = &norm;
        }
        rc = (q.y ? q.y : conv_dy(&q, 0))->rows ? run_in_use(&q, run, err) : run(&q, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The part of a call that all three passes share. */
static struct conv_call call(struct device *dev, const struct conv *cv, const struct param *w, int nshards)
{
    return (struct conv_call){ .dev = dev, .r = w->r, .s = w->s, .stride = cv->stride, .pad = cv->pad, .nshards = nshards };
}

int cpu_conv_fwd(struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w, const float *bias,
                 double *const *stats, int nshards, struct err *err)
{
    struct conv_call q = call(dev, cv, w, nshards);

    q.x = x;
    q.y = y;
    q.w = w;
    q.bias = bias;
    q.stats = stats;
    return over_shards(&q, fwd, err);
}

int cpu_conv_bwd_data(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                      int nshards, struct err *err)
{
    struct conv_call q = call(dev, cv, w, nshards);

    q.y = dx;
    q.dy = dy;
    q.w = w;
    q.beta = beta;
    return over_shards(&q, bwd_data, err);
}

int cpu_conv_bwd_weights(struct device *dev, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,
                         const struct conv *cv, const struct param *w, int nshards, struct err *err)
{
    struct conv_call q = call(dev, cv, w, nshards);

    q.x = x;
    q.dy = dy;
    q.beta = beta;
    q.dw = dw;
    return over_shards(&q, bwd_weights, err);
}

int cpu_conv_norm_bwd_weights(struct device *dev, float *const *dw, float beta, const struct operand *x, const struct norm_grad *dy,
                              const struct conv *cv, const struct param *w, int nshards, struct err *err)
{
    struct conv_call q = call(dev, cv, w, nshards);

    for (int v = 0; v < nshards; v++)
        assert(!dy->x[v].x.rows);
    assert(w->c < CONV_NORM_CHANNELS); /* see wino_fits(): Winograd reads dy in place */
    q.x = x;
    q.norm = dy;
    q.beta = beta;
    q.dw = dw;
    return over_shards(&q, rows_conv_bwd_weights, err);
}

/* ---- bias ---- */
enum {
    BIAS_SLAB = 256, /* pixels in one chain of additions */
    BIAS_VECS = 4    /* chains at a time */
};

struct bias_args {
    const struct tensor *dy;
    float *part; /* [slabs][c] */
};

/* Channels [c, c + vecs * lanes). vecs is a constant at every call. */
SIMD_FN void bias_vectors(const struct tensor *t, size_t from, size_t to, int c, int vecs, int lanes, float *ret, bool half)
{
    vec sum[BIAS_VECS];

    for (int v = 0; v < vecs; v++)
        sum[v] = vset1(0.0f);
    for (size_t i = from; i < to; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[v] = vadd(sum[v], elem_load_n(elem_row(t, i, half), c + v * VW, lanes, half));
    for (int v = 0; v < vecs; v++)
        vstore_n(ret + c + v * VW, sum[v], lanes);
}

SIMD_FN void bias_sums(const struct tensor *t, size_t from, size_t to, float *ret, bool half)
{
    int c = 0;

    for (; c + BIAS_VECS * VW <= t->c; c += BIAS_VECS * VW)
        bias_vectors(t, from, to, c, BIAS_VECS, VW, ret, half);
    for (; c < t->c; c += VW)
        bias_vectors(t, from, to, c, 1, vlanes(t->c, c), ret, half);
}

static void bias_slab(void *arg, size_t slab, int thread)
{
    const struct bias_args *a = arg;
    const struct tensor *t = a->dy;
    size_t from = slab * BIAS_SLAB, to = from + BIAS_SLAB < cpu_pixels(t) ? from + BIAS_SLAB : cpu_pixels(t);

    (void)thread;
    ELEM_CALL(t->dtype, bias_sums, t, from, to, a->part + slab * (size_t)t->c);
}

int cpu_conv_bwd_bias(struct device *dev, float *const *db, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    for (int v = 0; v < nshards; v++) {
        size_t slabs = (cpu_pixels(&dy[v]) + BIAS_SLAB - 1) / BIAS_SLAB;
        struct bias_args a = { .dy = &dy[v] };

        if (slabs == 0 && beta == 0.0f)
            memset(db[v], 0, (size_t)dy[v].c * sizeof(float));
        if (slabs == 0)
            continue;
        a.part = cpu_scratch(dev, slabs * (size_t)dy[v].c * sizeof(float), err);
        if (!a.part)
            return -ENOMEM;
        threads_each(cpu_threads(dev), slabs, bias_slab, &a);
        slab_sum(cpu_threads(dev), db[v], beta, a.part, (int)slabs, (size_t)dy[v].c);
    }
    return 0;
}
