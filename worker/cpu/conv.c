/* worker/cpu/conv.c - the convolution ops: runs of equal shards go to the path of their shape together; and the bias gradient. */
#include "worker/cpu/conv.h"

#include <errno.h>

#include "worker/core/simd.h"

enum { STREAM_BYTES = 8 << 20 }; /* results this large are written past the caches: reading lines only to replace them costs more */

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->c == b->c;
}

static bool is_wino(const struct conv *cv, const struct param *w)
{
    return w->r == 3 && w->s == 3 && cv->stride == 1;
}

static void set_kernel(struct conv_call *q, const struct conv *cv, const struct param *w, int nshards)
{
    q->r = w->r;
    q->s = w->s;
    q->stride = cv->stride;
    q->pad = cv->pad;
    q->nshards = nshards;
}

/* Shards from v on that have v's shapes. */
static int equal_shards(const struct operand *x, const struct tensor *x_plain, const struct tensor *y, int v, int nshards)
{
    int n = 1;

    while (v + n < nshards && same_shape(&y[v], &y[v + n]) &&
           (x ? same_shape(&x[v].x, &x[v + n].x) : same_shape(&x_plain[v], &x_plain[v + n])))
        n++;
    return n;
}

int cpu_conv_fwd(struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w, const float *bias,
                 double *const *stats, int nshards, struct err *err)
{
    for (int v = 0, n; v < nshards; v += n) {
        struct conv_call q = { .dev = dev, .x = x + v, .y = y + v, .w = w, .bias = bias };
        int rc;

        n = equal_shards(x, NULL, y, v, nshards);
        set_kernel(&q, cv, w, n);
        q.stats = stats ? stats + v : NULL;
        rc = is_wino(cv, w) && wino_fits(y[v].h, y[v].w, w->c, w->k) ? wino_conv_fwd(&q, err) : rows_conv_fwd(&q, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cpu_conv_bwd_data(struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w,
                      int nshards, struct err *err)
{
    for (int v = 0, n; v < nshards; v += n) {
        struct conv_call q = { .dev = dev, .y = dx + v, .dy = dy + v, .w = w, .beta = beta };
        int rc;

        n = equal_shards(NULL, dy, dx, v, nshards);
        set_kernel(&q, cv, w, n);
        rc = is_wino(cv, w) && wino_fits(dx[v].h, dx[v].w, w->k, w->c) ? wino_conv_bwd_data(&q, err) : rows_conv_bwd_data(&q, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cpu_conv_bwd_weights(struct device *dev, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,
                         const struct conv *cv, const struct param *w, int nshards, struct err *err)
{
    for (int v = 0, n; v < nshards; v += n) {
        struct conv_call q = { .dev = dev, .x = x + v, .dy = dy + v, .beta = beta };
        int rc;

        n = equal_shards(x, NULL, dy, v, nshards);
        set_kernel(&q, cv, w, n);
        q.dw = dw + v;
        rc = is_wino(cv, w) && wino_fits(dy[v].h, dy[v].w, w->c, w->k) ? wino_conv_bwd_weights(&q, err) : rows_conv_bwd_weights(&q, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool conv_streams(const struct conv_call *q)
{
    size_t bytes = 0;

    if (!VSTREAMS || q->beta != 0.0f)
        return false;
    for (int v = 0; v < q->nshards; v++) {
        const struct tensor *y = &q->y[v];

        if ((uintptr_t)y->data % 64 != 0 || y->c % 16 != 0 || y->stride % 16 != 0)
            return false;
        bytes += tensor_count(y) * sizeof(float);
    }
    return bytes >= STREAM_BYTES;
}

/* ---- bias ---- */
enum { BIAS_SLAB = 256 }; /* pixels, one chain of additions */

struct bias_args {
    const struct tensor *dy;
    float *part; /* [slabs][c] */
};

static void bias_slab(void *arg, size_t slab, int thread)
{
    const struct bias_args *a = arg;
    const struct tensor *t = a->dy;
    size_t from = slab * BIAS_SLAB, to = from + BIAS_SLAB < tensor_pixels(t) ? from + BIAS_SLAB : tensor_pixels(t);

    (void)thread;
    for (int c = 0; c < t->c; c += VW) {
        const float *p = (const float *)t->data + from * (size_t)t->stride + c;
        int lanes = vlanes(t->c, c);
        vec sum = vset1(0.0f);

        for (size_t i = from; i < to; i++, p += t->stride)
            sum = vadd(sum, vload_n(p, lanes));
        vstore_n(a->part + slab * (size_t)t->c + c, sum, lanes);
    }
}

int cpu_conv_bwd_bias(struct device *dev, float *const *db, float beta, const struct tensor *dy, int nshards, struct err *err)
{
    for (int v = 0; v < nshards; v++) {
        size_t slabs = (tensor_pixels(&dy[v]) + BIAS_SLAB - 1) / BIAS_SLAB;
        struct bias_args a = { &dy[v], cpu_scratch(dev, slabs * (size_t)dy[v].c * sizeof(float), err) };

        if (!a.part)
            return -ENOMEM;
        threads_each(cpu_threads(dev), slabs, bias_slab, &a);
        slab_sum(cpu_threads(dev), db[v], beta, a.part, (int)slabs, (size_t)dy[v].c);
    }
    return 0;
}
