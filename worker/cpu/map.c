/* worker/cpu/map.c - activations and sums of whole tensors. */
#include "worker/kernels/act.h"

#include <stdbool.h>

#include "worker/kernels/philox.h"

#include "worker/cpu/rows.h"

struct act_args {
    enum act_kind kind;
    float beta;
    struct tensor *dst;
    const struct operand *a, *b;
    const struct tensor *dy, *y;
};

static size_t pixels(const void *arg, int v)
{
    const struct act_args *a = arg;

    return cpu_pixels(&a->dst[v]);
}

static float *at(const struct tensor *t, size_t pixel)
{
    return (float *)t->data + pixel * (size_t)t->stride;
}

/* Dense tensors without anything per channel are one long row: a loop of 16 channels would spend its time starting. */
static size_t as_one_row(size_t npixels, int c, bool dense, size_t *ret_rows)
{
    *ret_rows = dense ? 1 : npixels;
    return dense ? npixels * (size_t)c : (size_t)c;
}

KERNEL_FN void fwd_rows(struct tensor *y, const struct operand *x, size_t from, size_t to, enum act_kind kind, bool pending)
{
    const struct affine *p = &x->act;
    size_t rows, n = as_one_row(to - from, y->c, !pending && y->stride == y->c && x->x.stride == y->c, &rows);

    for (size_t r = from; r < from + rows; r++) {
        const float *src = at(&x->x, r);
        float *dst = at(y, r);

        CPU_LANES
        for (size_t k = 0; k < n; k++)
            dst[k] = act_value(kind, pending ? act_pending(src[k], p->scale[k], p->shift[k], p->slope[k]) : src[k]);
    }
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *a = arg;
    struct tensor *y = &a->dst[v];
    const struct operand *x = &a->a[v];

#define CASE(kind)                                 \
    case kind:                                     \
        if (x->act.scale)                          \
            fwd_rows(y, x, from, to, kind, true);  \
        else                                       \
            fwd_rows(y, x, from, to, kind, false); \
        break;
    switch (a->kind) {
        CASE(ACT_LINEAR)
        CASE(ACT_LEAKY)
        CASE(ACT_RELU)
        CASE(ACT_LOGISTIC)
        CASE(ACT_TANH)
        CASE(ACT_ELU)
    }
#undef CASE
}

int cpu_map_act_fwd(struct device *dev, enum act_kind kind, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct act_args a = { .kind = kind, .dst = y, .a = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pixels, fwd_part, &a });
    return 0;
}

int cpu_map_cast(struct device *dev, struct tensor *y, const struct tensor *x, int nshards, struct err *err)
{
    int rc = 0;

    for (int v = 0; v < nshards && rc >= 0; v++)
        rc = cpu_map_act_fwd(dev, ACT_LINEAR, &y[v], &(struct operand){ .x = x[v] }, 1, err); /* one dtype: a copy */
    return rc;
}

KERNEL_FN void bwd_rows(struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y, size_t from, size_t to,
                        enum act_kind kind, bool add)
{
    bool dense = dx->stride == dx->c && dy->stride == dx->c && (kind == ACT_LINEAR || y->stride == dx->c);
    size_t rows, n = as_one_row(to - from, dx->c, dense, &rows);

    for (size_t r = from; r < from + rows; r++) {
        float *dst = at(dx, r);
        const float *d = at(dy, r), *out = kind == ACT_LINEAR ? d : at(y, r);

        CPU_LANES
        for (size_t k = 0; k < n; k++)
            dst[k] = act_store(add ? beta : 0.0f, &dst[k], act_grad(kind, d[k], out[k]));
    }
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *a = arg;
    struct tensor *dx = &a->dst[v];
    const struct tensor *dy = &a->dy[v], *y = a->kind == ACT_LINEAR ? dy : &a->y[v];

#define CASE(kind)                                              \
    case kind:                                                  \
        if (a->beta != 0.0f)                                    \
            bwd_rows(dx, a->beta, dy, y, from, to, kind, true); \
        else                                                    \
            bwd_rows(dx, 0.0f, dy, y, from, to, kind, false);   \
        break;
    switch (a->kind) {
        CASE(ACT_LINEAR)
        CASE(ACT_LEAKY)
        CASE(ACT_RELU)
        CASE(ACT_LOGISTIC)
        CASE(ACT_TANH)
        CASE(ACT_ELU)
    }
#undef CASE
}

int cpu_map_act_bwd(struct device *dev, enum act_kind kind, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y,
                    int nshards, struct err *err)
{
    struct act_args a = { .kind = kind, .beta = beta, .dst = dx, .dy = dy, .y = y };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pixels, bwd_part, &a });
    return 0;
}

KERNEL_FN float read_operand(const struct affine *p, bool pending, float x, size_t k)
{
    return pending ? act_pending(x, p->scale[k], p->shift[k], p->slope[k]) : x;
}

KERNEL_FN void add_rows(struct tensor *y, const struct operand *a, const struct operand *b, size_t from, size_t to, bool pa, bool pb)
{
    bool dense = !pa && !pb && y->stride == y->c && a->x.stride == y->c && b->x.stride == y->c;
    size_t rows, n = as_one_row(to - from, y->c, dense, &rows);

    for (size_t r = from; r < from + rows; r++) {
        const float *p = at(&a->x, r), *q = at(&b->x, r);
        float *dst = at(y, r);

        CPU_LANES
        for (size_t k = 0; k < n; k++)
            dst[k] = read_operand(&a->act, pa, p[k], k) + read_operand(&b->act, pb, q[k], k);
    }
}

static void add_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *s = arg;
    struct tensor *y = &s->dst[v];
    const struct operand *a = &s->a[v], *b = &s->b[v];

    if (a->act.scale && b->act.scale)
        add_rows(y, a, b, from, to, true, true);
    else if (a->act.scale)
        add_rows(y, a, b, from, to, true, false);
    else if (b->act.scale)
        add_rows(y, a, b, from, to, false, true);
    else
        add_rows(y, a, b, from, to, false, false);
}

int cpu_map_add_fwd(struct device *dev, struct tensor *y, const struct operand *a, const struct operand *b, int nshards, struct err *err)
{
    struct act_args s = { .dst = y, .a = a, .b = b };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pixels, add_part, &s });
    return 0;
}

/* ---- dropout ---- */

struct dropout_args {
    float rate, beta;
    struct tensor *y;
    const struct operand *x;
    const struct philox_key *keys;
};

static size_t dropout_pixels(const void *arg, int v)
{
    return cpu_pixels(&((const struct dropout_args *)arg)->y[v]);
}

static void dropout_part(const void *arg, int v, size_t from, size_t to)
{
    const struct dropout_args *a = arg;
    const struct tensor *y = &a->y[v];
    const struct operand *x = &a->x[v];
    const struct philox_key *keys = a->keys;
    size_t pixels = (size_t)y->h * (size_t)y->w;

    for (int u = 0; u < v; u++)
        keys += a->y[u].n;
    for (size_t p = from; p < to; p++) {
        const struct philox_key *key = &keys[p / pixels];
        size_t first = p % pixels * (size_t)y->c;
        const float *src = at(&x->x, p);
        float *dst = at(y, p), factor[4];

        for (int k = 0; k < y->c; k++) {
            size_t element = first + (size_t)k;

            if (k == 0 || element % 4 == 0)
                philox_dropout(key, element / 4, a->rate, factor);
            dst[k] = act_store(a->beta, &dst[k], read_operand(&x->act, x->act.scale, src[k], (size_t)k) * factor[element % 4]);
        }
    }
}

int cpu_map_dropout(struct device *dev, float rate, const struct philox_key *keys, struct tensor *y, float beta, const struct operand *x,
                    int nshards, struct err *err)
{
    struct dropout_args a = { rate, beta, y, x, keys };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, dropout_pixels, dropout_part, &a });
    return 0;
}
