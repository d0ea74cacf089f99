/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/attention.c - multi-head attention. A unit of work is one head
 * of an image. bf16 goes by way of fp32 copies. */
#include "worker/kernels/attention.h"

#include <errno.h>
#include <string.h>

#include "worker/core/carve.h"
#include "worker/cpu/rows.h"
#include "worker/cpu/wide.h"
#include "worker/kernels/act.h"

struct attn_args {
    const struct attn *how;
    const struct tensor *qkv, *o, *d_o; /* d_o: the gradient of o */
    const struct tensor *ret;           /* o, or the gradient of qkv */
    float *const *stats;
    float beta;
    char *memory; /* `each` bytes for every thread */
    size_t each;
};

/* n rows of d channels: the queries, keys ... of a head. */
struct rows {
    float *at;
    size_t stride;
};

struct head {
    size_t d, n;
    float *stats;
    struct rows q, k, v, o, d_o, ret[3]; /* ret: o, or the gradients of q, k, v */
    float *kt, *vt, *dk, *dv;            /* [d][n]: k and v turned; [n][d] */
    float *p, *s, *sum;                  /* [n]: probabilities of a query, gradients of its scores; [d] */
};

static struct rows rows_at(const struct tensor *t, size_t row, size_t channel)
{
    return (struct rows){ (float *)t->data + row * (size_t)t->stride + channel, (size_t)t->stride };
}

static float *row_of(struct rows r, size_t i)
{
    return r.at + i * r.stride;
}

static size_t units_of(const struct attn_args *a, int v)
{
    return (size_t)(a->qkv[v].n / a->how->rows * a->how->heads);
}

static void lay_out(struct carve *c, const struct attn_args *a, struct head *h)
{
    float **large[] = { &h->kt, &h->vt, &h->dk, &h->dv };

    h->d = (size_t)(a->qkv[0].c / 3 / a->how->heads);
    h->n = (size_t)a->how->rows;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        *large[i] = carve(c, h->n * h->d * sizeof(float));
    h->p = carve(c, h->n * sizeof(float));
    h->s = carve(c, h->n * sizeof(float));
    h->sum = carve(c, h->d * sizeof(float));
}

static struct head head_of(const struct attn_args *a, size_t unit, int thread)
{
    struct carve memory = { a->memory + (size_t)thread * a->each, 0 };
    size_t c = (size_t)(a->qkv[0].c / 3), heads = (size_t)a->how->heads, row, at;
    struct head h = { .d = 0 };
    int v = 0;

    lay_out(&memory, a, &h);
    for (; unit >= units_of(a, v); v++)
        unit -= units_of(a, v);
    row = unit / heads * h.n;
    at = unit % heads * h.d;
    h.stats = a->stats[v] + unit * 2 * h.n;
    h.q = rows_at(&a->qkv[v], row, at);
    h.k = rows_at(&a->qkv[v], row, at + c);
    h.v = rows_at(&a->qkv[v], row, at + 2 * c);
    for (size_t i = 0; i < (a->d_o ? 3 : 1); i++)
        h.ret[i] = rows_at(&a->ret[v], row, at + i * c);
    if (a->d_o) {
        h.o = rows_at(&a->o[v], row, at);
        h.d_o = rows_at(&a->d_o[v], row, at);
    }
    for (size_t i = 0; i < h.n; i++)
        for (size_t k = 0; k < h.d; k++) {
            h.kt[k * h.n + i] = row_of(h.k, i)[k];
            h.vt[k * h.n + i] = row_of(h.v, i)[k];
        }
    return h;
}

/* ret[i] = factor * the dot product of x and row i; the rows are turned. */
static void dots(float *ret, const struct head *h, const float *x, const float *turned, float factor)
{
    memset(ret, 0, h->n * sizeof *ret);
    for (size_t k = 0; k < h->d; k++) {
        CPU_LANES
        for (size_t i = 0; i < h->n; i++)
            ret[i] = fmaf(x[k], turned[k * h->n + i], ret[i]);
    }
    for (size_t i = 0; i < h->n; i++)
        ret[i] *= factor;
}

/* to = beta * to + factor * x */
static void store(float *to, const struct head *h, float beta, float factor, const float *x)
{
    CPU_LANES
    for (size_t k = 0; k < h->d; k++)
        to[k] = act_store(beta, &to[k], factor * x[k]);
}

/* x += f * y */
static void add(float *x, const struct head *h, float f, const float *y)
{
    CPU_LANES
    for (size_t k = 0; k < h->d; k++)
        x[k] = fmaf(f, y[k], x[k]);
}

/* to = beta * to + factor * the sum of weight[i] * row i */
static void mix(float *to, const struct head *h, float beta, float factor, const float *weight, struct rows rows)
{
    memset(h->sum, 0, h->d * sizeof *h->sum);
    for (size_t i = 0; i < h->n; i++)
        add(h->sum, h, weight[i], row_of(rows, i));
    store(to, h, beta, factor, h->sum);
}

static void fwd_head(void *arg, size_t unit, int thread)
{
    const struct head h = head_of(arg, unit, thread);

    for (size_t i = 0; i < h.n; i++) {
        float max, sum;
        int top;

        dots(h.p, &h, row_of(h.q, i), h.kt, attn_scale((int)h.d));
        max = softmax_max(h.p, (int)h.n, &top);
        sum = softmax_sum(h.p, (int)h.n, max);
        CPU_LANES
        for (size_t j = 0; j < h.n; j++)
            h.p[j] = attn_weight(h.p[j], max, sum);
        mix(row_of(h.ret[0], i), &h, 0.0f, 1.0f, h.p, h.v);
        h.stats[2 * i] = max;
        h.stats[2 * i + 1] = sum;
    }
}

static void bwd_head(void *arg, size_t unit, int thread)
{
    const struct head h = head_of(arg, unit, thread);
    float scale = attn_scale((int)h.d), beta = ((const struct attn_args *)arg)->beta;

    memset(h.dk, 0, h.n * h.d * sizeof *h.dk);
    memset(h.dv, 0, h.n * h.d * sizeof *h.dv);
    for (size_t i = 0; i < h.n; i++) {
        const float *q = row_of(h.q, i), *o = row_of(h.o, i), *d_o = row_of(h.d_o, i);
        float max = h.stats[2 * i], sum = h.stats[2 * i + 1], mean = 0.0f;

        dots(h.p, &h, q, h.kt, scale);
        dots(h.s, &h, d_o, h.vt, 1.0f);
        for (size_t k = 0; k < h.d; k++)
            mean = fmaf(d_o[k], o[k], mean);
        CPU_LANES
        for (size_t j = 0; j < h.n; j++) {
            h.p[j] = attn_weight(h.p[j], max, sum);
            h.s[j] = attn_slope(h.p[j], h.s[j], mean);
        }
        mix(row_of(h.ret[0], i), &h, beta, scale, h.s, h.k);
        for (size_t j = 0; j < h.n; j++) {
            add(h.dk + j * h.d, &h, h.s[j], q);
            add(h.dv + j * h.d, &h, h.p[j], d_o);
        }
    }
    for (size_t j = 0; j < h.n; j++) {
        store(row_of(h.ret[1], j), &h, beta, scale, h.dk + j * h.d);
        store(row_of(h.ret[2], j), &h, beta, 1.0f, h.dv + j * h.d);
    }
}

static int over_heads(struct device *dev, struct attn_args *a, void (*fn)(void *, size_t, int), int nshards, struct err *err)
{
    struct wide w[] = { { .of = a->ret, .each = sizeof *a->ret, .read = a->beta != 0.0f },
                        { .of = a->qkv, .each = sizeof *a->qkv, .read = true },
                        { .of = a->o, .each = sizeof *a->o, .read = true },
                        { .of = a->d_o, .each = sizeof *a->d_o, .read = true } };
    bool half = a->qkv[0].dtype == DTYPE_BF16;
    struct carve c = { NULL, 0 };
    size_t units = 0;
    struct head h;

    if (half && cpu_widen(dev, w, 4, nshards, err) < 0)
        return -ENOMEM;
    if (half) {
        a->ret = w[0].as;
        a->qkv = w[1].as;
        a->o = w[2].as;
        a->d_o = w[3].as;
    }
    for (int v = 0; v < nshards; v++)
        units += units_of(a, v);
    lay_out(&c, a, &h);
    a->each = c.used;
    a->memory = cpu_scratch(dev, (size_t)threads_count(cpu_threads(dev)) * c.used, err);
    if (!a->memory)
        return -ENOMEM;
    threads_each(cpu_threads(dev), units, fn, a);
    if (half)
        cpu_narrow(dev, &w[0], nshards);
    return 0;
}

int cpu_attn_fwd(struct device *dev, const struct attn *how, struct tensor *o, float *const *stats, const struct tensor *qkv, int nshards,
                 struct err *err)
{
    struct attn_args a = { .how = how, .qkv = qkv, .ret = o, .stats = stats };

    return over_heads(dev, &a, fwd_head, nshards, err);
}

int cpu_attn_bwd(struct device *dev, const struct attn *how, struct tensor *dqkv, float beta, const struct tensor *d_o,
                 const float *const *stats, const struct tensor *qkv, const struct tensor *o, int nshards, struct err *err)
{
    struct attn_args a = {
        .how = how, .qkv = qkv, .o = o, .d_o = d_o, .ret = dqkv, .stats = (float *const *)(uintptr_t)stats, .beta = beta
    };

    return over_heads(dev, &a, bwd_head, nshards, err);
}
