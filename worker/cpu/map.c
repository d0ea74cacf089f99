/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/map.c - activations and sums of whole tensors, and other
 * dtypes. */
#include "worker/kernels/act.h"

#include <stdbool.h>

#include "worker/kernels/philox.h"

#include "worker/cpu/elem.h"
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

/* Treats dense tensors without parameters per channel as one long row: loops of only 16 channels would be slow. */
static size_t as_one_row(size_t npixels, int c, bool dense, size_t *ret_rows)
{
    *ret_rows = dense ? 1 : npixels;
    return dense ? npixels * (size_t)c : (size_t)c;
}

/* from_half, half: x, y are bf16. */
KERNEL_FN void fwd_rows(struct tensor *y, const struct operand *x, size_t from, size_t to, enum act_kind kind, bool pending, bool from_half,
                        bool half)
{
    const struct affine *p = &x->act;
    size_t rows, n = as_one_row(to - from, y->c, !pending && y->stride == y->c && x->x.stride == y->c, &rows);

    for (size_t r = from; r < from + rows; r++) {
        const void *src = elem_row(&x->x, r, from_half);
        void *dst = elem_row(y, r, half);

        CPU_LANES
        for (size_t k = 0; k < n; k++) {
            float f = elem_get(src, (ptrdiff_t)k, from_half);

            elem_set(dst, (ptrdiff_t)k, act_value(kind, pending ? act_pending(f, p->scale[k], p->shift[k], p->slope[k]) : f), half);
        }
    }
}

KERNEL_FN void fwd_kinds(const struct act_args *a, int v, size_t from, size_t to, bool half)
{
    struct tensor *y = &a->dst[v];
    const struct operand *x = &a->a[v];

#define CASE(kind)                                             \
    case kind:                                                 \
        if (x->act.scale)                                      \
            fwd_rows(y, x, from, to, kind, true, half, half);  \
        else                                                   \
            fwd_rows(y, x, from, to, kind, false, half, half); \
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

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, fwd_kinds, a, v, from, to);
}

int cpu_map_act_fwd(struct device *dev, enum act_kind kind, struct tensor *y, const struct operand *x, int nshards, struct err *err)
{
    struct act_args a = { .kind = kind, .dst = y, .a = x };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, pixels, fwd_part, &a });
    return 0;
}

static void cast_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *a = arg;
    struct tensor *y = &a->dst[v];
    const struct operand *x = &a->a[v];

    if (y->dtype == DTYPE_BF16)
        fwd_rows(y, x, from, to, ACT_LINEAR, false, false, true);
    else
        fwd_rows(y, x, from, to, ACT_LINEAR, false, true, false);
}

int cpu_map_cast(struct device *dev, struct tensor *y, const struct tensor *x, int nshards, struct err *err)
{
    int rc = 0;

    for (int v = 0; v < nshards && rc >= 0; v++) {
        struct operand of = { .x = x[v] };
        struct act_args a = { .dst = &y[v], .a = &of };

        if (x[v].dtype == y[v].dtype)
            rc = cpu_map_act_fwd(dev, ACT_LINEAR, &y[v], &of, 1, err); /* a plain copy */
        else
            cpu_over_shards(dev, &(struct shard_work){ 1, pixels, cast_part, &a });
    }
    return rc;
}

KERNEL_FN void bwd_rows(struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *y, size_t from, size_t to,
                        enum act_kind kind, bool add, bool half)
{
    bool dense = dx->stride == dx->c && dy->stride == dx->c && (kind == ACT_LINEAR || y->stride == dx->c);
    size_t rows, n = as_one_row(to - from, dx->c, dense, &rows);

    for (size_t r = from; r < from + rows; r++) {
        void *dst = elem_row(dx, r, half);
        const void *d = elem_row(dy, r, half), *out = kind == ACT_LINEAR ? d : elem_row(y, r, half);

        CPU_LANES
        for (ptrdiff_t k = 0; k < (ptrdiff_t)n; k++)
            elem_store(add ? beta : 0.0f, dst, k, act_grad(kind, elem_get(d, k, half), elem_get(out, k, half)), half);
    }
}

KERNEL_FN void bwd_kinds(const struct act_args *a, int v, size_t from, size_t to, bool half)
{
    struct tensor *dx = &a->dst[v];
    const struct tensor *dy = &a->dy[v], *y = a->kind == ACT_LINEAR ? dy : &a->y[v];

#define CASE(kind)                                                    \
    case kind:                                                        \
        if (a->beta != 0.0f)                                          \
            bwd_rows(dx, a->beta, dy, y, from, to, kind, true, half); \
        else                                                          \
            bwd_rows(dx, 0.0f, dy, y, from, to, kind, false, half);   \
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

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *a = arg;

    ELEM_CALL(a->dst[v].dtype, bwd_kinds, a, v, from, to);
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

KERNEL_FN void add_rows(struct tensor *y, const struct operand *a, const struct operand *b, size_t from, size_t to, bool pa, bool pb,
                        bool half)
{
    bool dense = !pa && !pb && y->stride == y->c && a->x.stride == y->c && b->x.stride == y->c;
    size_t rows, n = as_one_row(to - from, y->c, dense, &rows);

    for (size_t r = from; r < from + rows; r++) {
        const void *p = elem_row(&a->x, r, half), *q = elem_row(&b->x, r, half);
        void *dst = elem_row(y, r, half);

        CPU_LANES
        for (size_t k = 0; k < n; k++) {
            float f = elem_get(p, (ptrdiff_t)k, half), g = elem_get(q, (ptrdiff_t)k, half);

            elem_set(dst, (ptrdiff_t)k, read_operand(&a->act, pa, f, k) + read_operand(&b->act, pb, g, k), half);
        }
    }
}

KERNEL_FN void add_kinds(const struct act_args *s, int v, size_t from, size_t to, bool half)
{
    struct tensor *y = &s->dst[v];
    const struct operand *a = &s->a[v], *b = &s->b[v];

    if (a->act.scale && b->act.scale)
        add_rows(y, a, b, from, to, true, true, half);
    else if (a->act.scale)
        add_rows(y, a, b, from, to, true, false, half);
    else if (b->act.scale)
        add_rows(y, a, b, from, to, false, true, half);
    else
        add_rows(y, a, b, from, to, false, false, half);
}

static void add_part(const void *arg, int v, size_t from, size_t to)
{
    const struct act_args *s = arg;

    ELEM_CALL(s->dst[v].dtype, add_kinds, s, v, from, to);
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

KERNEL_FN void dropout_pixels_of(const struct dropout_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *y = &a->y[v];
    const struct operand *x = &a->x[v];
    const struct philox_key *keys = a->keys;
    size_t pixels = (size_t)y->h * (size_t)y->w;

    for (int u = 0; u < v; u++)
        keys += a->y[u].n;
    for (size_t p = from; p < to; p++) {
        const struct philox_key *key = &keys[p / pixels];
        size_t first = p % pixels * (size_t)y->c;
        const void *src = elem_row(&x->x, p, half);
        void *dst = elem_row(y, p, half);
        float factor[4];

        for (int k = 0; k < y->c; k++) {
            size_t element = first + (size_t)k;

            if (k == 0 || element % 4 == 0)
                philox_dropout(key, element / 4, a->rate, factor);
            elem_store(a->beta, dst, k, read_operand(&x->act, x->act.scale, elem_get(src, k, half), (size_t)k) * factor[element % 4], half);
        }
    }
}

static void dropout_part(const void *arg, int v, size_t from, size_t to)
{
    const struct dropout_args *a = arg;

    ELEM_CALL(a->y[v].dtype, dropout_pixels_of, a, v, from, to);
}

int cpu_map_dropout(struct device *dev, float rate, const struct philox_key *keys, struct tensor *y, float beta, const struct operand *x,
                    int nshards, struct err *err)
{
    struct dropout_args a = { rate, beta, y, x, keys };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, dropout_pixels, dropout_part, &a });
    return 0;
}
