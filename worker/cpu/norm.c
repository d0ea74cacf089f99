/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/norm.c - batch normalisation: scale and shift from statistics,
 * the sums for backward, running statistics. */
#include "worker/kernels/norm.h"

#include <errno.h>

#include "worker/core/tree.h"
#include "worker/cpu/norm_pooled.h"
#include "worker/cpu/rows.h"
#include "worker/kernels/reduce.h"

enum { BLOCK = 32 /* channels with sums in registers during a slab */ };

int cpu_norm_prepare(struct device *dev, float *const *mean, float *const *invstd, float *const *scale, float *const *shift,
                     const double *const *stats, const float *gamma, const float *beta, float eps, int c, int nshards, struct err *err)
{
    (void)dev, (void)err;
    for (int v = 0; v < nshards; v++)
        for (int k = 0; k < c; k++) {
            struct norm_channel n = norm_channel(stats[v][1 + k], stats[v][1 + c + k] / stats[v][0], gamma[k], beta[k], eps);

            mean[v][k] = n.mean;
            invstd[v][k] = n.invstd;
            scale[v][k] = n.scale;
            shift[v][k] = n.shift;
        }
    return 0;
}

int cpu_norm_prepare_running(struct device *dev, float *invstd, float *scale, float *shift, const float *mean, const float *var,
                             const float *gamma, const float *beta, float eps, int c, struct err *err)
{
    (void)dev, (void)err;
    for (int k = 0; k < c; k++) {
        struct norm_channel n = norm_channel((double)mean[k], (double)var[k], gamma[k], beta[k], eps);

        invstd[k] = n.invstd;
        scale[k] = n.scale;
        shift[k] = n.shift;
    }
    return 0;
}

struct reduce_args {
    const struct operand *x;
    const float *const *mean, *const *invstd;
    const struct tensor *da;
    float *partial; /* shard by shard, slab by slab: [2][c] */
    double *const *sums;
};

static size_t slabs_of(const struct tensor *t)
{
    size_t per = (size_t)norm_slab_pixels(t->c);

    return (tensor_pixels(t) + per - 1) / per;
}

static size_t slabs(const void *arg, int v)
{
    const struct reduce_args *a = arg;

    return slabs_of(&a->x[v].x);
}

static float *partial_of(const struct reduce_args *a, int v, size_t slab)
{
    float *p = a->partial;

    for (int i = 0; i < v; i++)
        p += slabs_of(&a->x[i].x) * 2 * (size_t)a->x[i].x.c;
    return p + slab * 2 * (size_t)a->x[v].x.c;
}

/* norm_slab() for `width` channels from channel k on. width is a constant at every call that matters. */
KERNEL_FN void slab_block(const struct reduce_args *a, int v, size_t from, size_t to, int k, int width, float *ret, bool half)
{
    const struct operand *o = &a->x[v];
    const float *scale = o->act.scale + k, *shift = o->act.shift + k, *slope = o->act.slope + k;
    const float *mean = a->mean[v] + k, *invstd = a->invstd[v] + k;
    float s0[BLOCK] = { 0 }, s1[BLOCK] = { 0 };
    int c = o->x.c;

    for (size_t p = from; p < to; p++) {
        const void *x = elem_at(elem_row(&o->x, p, half), k, half), *da = elem_at(elem_row(&a->da[v], p, half), k, half);

        for (int i = 0; i < width; i += 16) {
            __builtin_prefetch(elem_at(x, i + NORM_AHEAD, half));
            __builtin_prefetch(elem_at(da, i + NORM_AHEAD, half));
        }
        CPU_LANES
        for (int i = 0; i < width; i++) {
            float f = elem_get(x, i, half), dy = norm_dy(elem_get(da, i, half), f, scale[i], shift[i], slope[i]);

            s0[i] += dy;
            s1[i] = fmaf(dy, norm_xhat(f, mean[i], invstd[i]), s1[i]);
        }
    }
    for (int i = 0; i < width; i++) {
        ret[k + i] = s0[i];
        ret[c + k + i] = s1[i];
    }
}

/* The same for gradients of maxima, channels k ... k + n of a span. */
SIMD_FN void pooled_span(const struct span4 *s, const struct channels *ch, int k, int n, bool lower, bool half, vec sum[2])
{
    vec s0 = sum[0], s1 = sum[1];

    for (int x = s->from / 2 * 2; x < s->to; x += 2) {
        struct pixel4 px[2];

        window_pixels(s, x - s->from / 2 * 2, ch, k, n, lower ? 2 : 0, 2, half, px);
        if (x >= s->from) {
            s0 = vadd(s0, px[0].dy);
            s1 = vfma(px[0].dy, px[0].xhat, s1);
        }
        if (x + 1 < s->to) {
            s0 = vadd(s0, px[1].dy);
            s1 = vfma(px[1].dy, px[1].xhat, s1);
        }
    }
    sum[0] = s0;
    sum[1] = s1;
}

SIMD_FN void pooled_block(const struct reduce_args *a, int v, size_t from, size_t to, float *ret, bool half)
{
    const struct operand *o = &a->x[v];
    const int c = o->x.c;

    for (int k = 0; k < c; k += VW) {
        const int n = vlanes(c, k);
        const struct channels ch = channels_of(&o->act, a->mean[v], a->invstd[v], k, n);
        vec sum[2] = { vset1(0.0f), vset1(0.0f) };

        for (size_t p = from; p < to;) {
            const struct span4 s = span_of(o, &a->da[v], p, to, half);

            if (s.lower && n == VW)
                pooled_span(&s, &ch, k, VW, true, half, sum);
            else if (n == VW)
                pooled_span(&s, &ch, k, VW, false, half, sum);
            else
                pooled_span(&s, &ch, k, n, s.lower, half, sum);
            p += (size_t)(s.to - s.from);
        }
        vstore_n(ret + k, sum[0], n);
        vstore_n(ret + c + k, sum[1], n);
    }
}

KERNEL_FN void reduce_slabs(const struct reduce_args *a, int v, size_t from, size_t to, bool half)
{
    const struct tensor *t = &a->x[v].x;
    size_t per = (size_t)norm_slab_pixels(t->c), npixels = tensor_pixels(t);

    for (size_t s = from; s < to; s++) {
        size_t lo = s * per, hi = lo + per < npixels ? lo + per : npixels;
        float *ret = partial_of(a, v, s);
        int k = 0;

        if (norm_is_pooled(&a->x[v], &a->da[v])) {
            pooled_block(a, v, lo, hi, ret, half);
            continue;
        }
        for (; k + BLOCK <= t->c; k += BLOCK)
            slab_block(a, v, lo, hi, k, BLOCK, ret, half);
        for (; k + BLOCK / 2 <= t->c; k += BLOCK / 2)
            slab_block(a, v, lo, hi, k, BLOCK / 2, ret, half);
        if (k < t->c)
            slab_block(a, v, lo, hi, k, t->c - k, ret, half);
    }
}

static void reduce_part(const void *arg, int v, size_t from, size_t to)
{
    const struct reduce_args *a = arg;

    ELEM_CALL(a->x[v].x.dtype, reduce_slabs, a, v, from, to);
}

static size_t sum_units(const void *arg, int v)
{
    const struct reduce_args *a = arg;

    return ((size_t)a->x[v].x.c * 2 + SUM_LANES - 1) / SUM_LANES;
}

/* Folds 16 of a shard's 2c sums over its slabs in a pairwise tree. */
static void fold_slabs(double *dst, const float *partial, size_t nslabs, size_t step, int width)
{
    double sum[TREE_DEPTH][SUM_LANES];
    int depth = 0;

    for (size_t s = 0; s < nslabs; s++, depth++) {
        for (int l = 0; l < width; l++)
            sum[depth][l] = (double)partial[s * step + (size_t)l];
        for (size_t below = s + 1; below % 2 == 0; below /= 2, depth--)
            for (int l = 0; l < width; l++)
                sum[depth - 1][l] += sum[depth][l];
    }
    for (depth--; depth > 0; depth--)
        for (int l = 0; l < width; l++)
            sum[depth - 1][l] += sum[depth][l];
    for (int l = 0; l < width; l++)
        dst[l] = nslabs > 0 ? sum[0][l] : 0.0;
}

static void fold_part(const void *arg, int v, size_t from, size_t to)
{
    const struct reduce_args *a = arg;
    size_t step = 2 * (size_t)a->x[v].x.c, nslabs = slabs(arg, v);

    for (size_t u = from; u < to; u++) {
        size_t first = u * SUM_LANES, width = step - first < SUM_LANES ? step - first : SUM_LANES;

        fold_slabs(a->sums[v] + first, partial_of(a, v, 0) + first, nslabs, step, (int)width);
    }
}

static void narrow(const struct sums_dest *dest, const double *sums, int v, int c)
{
    float *dst = dest->dst[v];

    for (int k = 0; k < c; k++)
        dst[k] = act_store(dest->beta, &dst[k], (float)sums[k]);
}

int cpu_norm_bwd_reduce(struct device *dev, double *const *sums, const struct sums_dest dest[2], const struct operand *x,
                        const float *const *mean, const float *const *invstd, const struct tensor *da, int nshards, struct err *err)
{
    struct reduce_args a = { x, mean, invstd, da, NULL, sums };
    size_t floats = 0;

    for (int v = 0; v < nshards; v++)
        floats += slabs(&a, v) * 2 * (size_t)x[v].x.c;
    a.partial = cpu_scratch(dev, floats * sizeof(float), err);
    if (!a.partial)
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, slabs, reduce_part, &a });
    cpu_over_shards(dev, &(struct shard_work){ nshards, sum_units, fold_part, &a });
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < 2; i++)
            narrow(&dest[i], sums[v] + (size_t)i * (size_t)x[v].x.c, v, x[v].x.c);
    return 0;
}

int cpu_reduce_tree_moments(struct device *dev, double *dst, const double *const *stats, int nstats, int c, struct err *err)
{
    (void)dev, (void)err;
    tree_moments(dst, stats, nstats, c);
    return 0;
}

int cpu_reduce_tree_sums(struct device *dev, double *dst, const double *const *rows, int nrows, size_t count, struct err *err)
{
    (void)dev, (void)err;
    tree_sum_rows(dst, rows, nrows, count);
    return 0;
}

static void running_merged(const struct running_item *item, const double *const *stats, int nstats, float momentum)
{
    float *mean = item->mean->data, *var = item->var->data;
    int c = (int)item->mean->count;

    for (int k = 0; k < c; k++) {
        struct moments m = tree_moments_channel(stats, nstats, item->at, c, k);

        mean[k] = norm_running_value(mean[k], m.mean, momentum);
        if (m.count > 1.0)
            var[k] = norm_running_value(var[k], norm_unbiased(m.m2, m.count), momentum);
    }
}

static void running_shards(const struct running_item *item, const double *const *stats, int nstats, float momentum, double *value)
{
    float *mean = item->mean->data, *var = item->var->data;
    size_t c = item->mean->count, at = item->at;
    int nvars = 0;

    for (int i = 0; i < nstats; i++)
        nvars += stats[i][at] > 1.0;
    for (size_t k = 0; k < c; k++) {
        for (int i = 0; i < nstats; i++)
            value[i] = stats[i][at + 1 + k];
        mean[k] = norm_running_value(mean[k], tree_sum(value, 1, nstats) / (double)nstats, momentum);
        for (int i = 0; i < nstats; i++)
            value[i] = norm_unbiased(stats[i][at + 1 + c + k], stats[i][at]);
        if (nvars > 0)
            var[k] = norm_running_value(var[k], tree_sum(value, 1, nstats) / (double)nvars, momentum);
    }
}

int cpu_norm_running(struct device *dev, const struct running_item *items, int nitems, const double *const *stats, int nstats,
                     float momentum, const int32_t *skip, struct err *err)
{
    double *value = cpu_scratch(dev, (size_t)nstats * sizeof(double), err);

    if (!value)
        return -ENOMEM;
    for (int i = 0; i < nitems; i++) {
        if (!*skip && items[i].sync)
            running_merged(&items[i], stats, nstats, momentum);
        else if (!*skip)
            running_shards(&items[i], stats, nstats, momentum, value);
        items[i].mean->version++;
        items[i].var->version++;
    }
    return 0;
}
