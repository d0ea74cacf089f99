/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/layernorm.c - layer normalisation, row by row in fp32. */
#include "worker/kernels/layernorm.h"

#include <errno.h>
#include <string.h>

#include "worker/cpu/conv.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/rows.h"

struct norm_args {
    const struct rows_norm *how;
    const struct tensor *x, *residual; /* residual may be NULL */
    const struct tensor *y;            /* the result, or its gradient */
    float *const *stats;
    const struct tensor *dx[2]; /* of x, of residual; may be NULL */
    const float *beta;          /* for dx */
    float *part;                /* shard by shard, [2][slabs][c]: gradients of gamma and beta */
};

/* Numbers of a row; those beyond its channels are 0. */
struct numbers {
    float at[ROWS_MAX_CHANNELS];
};

SIMD_FN void read_numbers(struct numbers *to, const struct tensor *t, size_t row, bool add, bool half)
{
    const void *from = elem_row(t, row, half);

    CPU_LANES
    for (int k = 0; k < t->c; k++)
        to->at[k] = add ? to->at[k] + elem_get(from, k, half) : elem_get(from, k, half);
}

SIMD_FN void write_numbers(const struct tensor *t, size_t row, float beta, const struct numbers *from, bool half)
{
    void *to = elem_row(t, row, half);

    CPU_LANES
    for (int k = 0; k < t->c; k++)
        elem_store(beta, to, k, from->at[k], half);
}

/* x + residual */
static void read_x(struct numbers *to, const struct norm_args *a, int v, size_t row)
{
    ELEM_CALL(a->x[v].dtype, read_numbers, to, &a->x[v], row, false);
    if (a->residual)
        ELEM_CALL(a->residual[v].dtype, read_numbers, to, &a->residual[v], row, true);
}

/* The sum of x, or of x * y. */
static float sum_of(const struct numbers *x, const struct numbers *y, int c)
{
    vec sum[SUM_LANES / VW];
    float lane[SUM_LANES];

    for (int i = 0; i < SUM_LANES / VW; i++)
        sum[i] = vset1(0.0f);
    for (int k = 0; k < c; k += SUM_LANES)
        for (int i = 0; i < SUM_LANES / VW; i++) {
            vec f = vload(x->at + k + i * VW);

            sum[i] = y ? vfma(f, vload(y->at + k + i * VW), sum[i]) : vadd(sum[i], f);
        }
    for (int i = 0; i < SUM_LANES / VW; i++)
        vstore(lane + i * VW, sum[i]);
    return sum_lanes32(lane);
}

/* ---- forward ---- */

static size_t rows_of(const void *arg, int v)
{
    return cpu_pixels(&((const struct norm_args *)arg)->x[v]);
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct norm_args *a = arg;
    struct numbers x = { { 0 } };
    int c = a->x[v].c;

    for (size_t row = from; row < to; row++) {
        float mean, rho;

        read_x(&x, a, v, row);
        mean = rows_mean(sum_of(&x, NULL, c), c);
        for (int k = 0; k < c; k++)
            x.at[k] -= mean;
        rho = rows_rho(sum_of(&x, &x, c), c, a->how->eps);
        for (int k = 0; k < c; k++)
            x.at[k] = rows_value(a->how, x.at[k] * rho, k);
        ELEM_CALL(a->y[v].dtype, write_numbers, &a->y[v], row, 0.0f, &x);
        a->stats[v][2 * row] = mean;
        a->stats[v][2 * row + 1] = rho;
    }
}

int cpu_rows_norm_fwd(struct device *dev, const struct rows_norm *how, struct tensor *y, float *const *stats, const struct tensor *x,
                      const struct tensor *residual, int nshards, struct err *err)
{
    const struct norm_args a = { .how = how, .x = x, .residual = residual, .y = y, .stats = stats };

    (void)err;
    cpu_over_shards(dev, &(struct shard_work){ nshards, rows_of, fwd_part, &a });
    return 0;
}

/* ---- backward ---- */

static size_t slabs_of(const void *arg, int v)
{
    return (rows_of(arg, v) + ROWS_SLAB - 1) / ROWS_SLAB;
}

/* Offset of a shard's partial sums. A shard without rows has room for a slab. */
static size_t part_at(const struct norm_args *a, int v)
{
    size_t at = 0;

    for (int i = 0; i < v; i++)
        at += 2 * (slabs_of(a, i) + (slabs_of(a, i) == 0)) * (size_t)a->x[i].c;
    return at;
}

/* The row's gradients; its shares of those of gamma and beta are added to the sums. */
static void bwd_row(const struct norm_args *a, int v, size_t row, float *dgamma, float *dbeta, struct numbers *x, struct numbers *t)
{
    float mean = a->stats[v][2 * row], rho = a->stats[v][2 * row + 1], mean_t, mean_tx;
    int c = a->x[v].c;

    read_x(x, a, v, row);
    ELEM_CALL(a->y[v].dtype, read_numbers, t, &a->y[v], row, false);
    CPU_LANES
    for (int k = 0; k < c; k++) {
        float xhat = norm_xhat(x->at[k], mean, rho), dy = rows_dy(a->how, t->at[k], xhat, k);

        x->at[k] = xhat;
        t->at[k] = dy * a->how->gamma[k];
        dgamma[k] = fmaf(dy, xhat, dgamma[k]);
        dbeta[k] += dy;
    }
    if (!a->dx[0] && !a->dx[1])
        return;
    mean_t = rows_mean(sum_of(t, NULL, c), c);
    mean_tx = rows_mean(sum_of(t, x, c), c);
    for (int k = 0; k < c; k++)
        t->at[k] = norm_dx(t->at[k], x->at[k], rho, mean_t, mean_tx);
    for (int i = 0; i < 2; i++)
        if (a->dx[i])
            ELEM_CALL(a->dx[i][v].dtype, write_numbers, &a->dx[i][v], row, a->beta[i], t);
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct norm_args *a = arg;
    size_t c = (size_t)a->x[v].c, rows = rows_of(a, v);
    struct numbers x = { { 0 } }, t = { { 0 } };

    for (size_t slab = from; slab < to; slab++) {
        float *dgamma = a->part + part_at(a, v) + slab * c, *dbeta = dgamma + slabs_of(a, v) * c;

        memset(dgamma, 0, c * sizeof *dgamma);
        memset(dbeta, 0, c * sizeof *dbeta);
        for (size_t row = slab * ROWS_SLAB; row < rows && row < (slab + 1) * ROWS_SLAB; row++)
            bwd_row(a, v, row, dgamma, dbeta, &x, &t);
    }
}

int cpu_rows_norm_bwd(struct device *dev, const struct rows_norm *how, struct tensor *dx, struct tensor *dresidual, const float *beta,
                      const struct sums_dest dest[2], const struct tensor *dy, const float *const *stats, const struct tensor *x,
                      const struct tensor *residual, int nshards, struct err *err)
{
    struct norm_args a = { how, x, residual, dy, (float *const *)(uintptr_t)stats, { dx, dresidual }, beta, NULL };

    a.part = cpu_scratch(dev, part_at(&a, nshards) * sizeof(float), err);
    if (!a.part)
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, slabs_of, bwd_part, &a });
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < 2; i++) {
            size_t c = (size_t)x[v].c, n = slabs_of(&a, v);
            float *part = a.part + part_at(&a, v) + (size_t)i * n * c;

            if (n == 0)
                memset(part, 0, c * sizeof *part);
            if (dest[i].dst)
                slab_sum(cpu_threads(dev), dest[i].dst[v], dest[i].beta, part, (int)n, c);
        }
    return 0;
}
