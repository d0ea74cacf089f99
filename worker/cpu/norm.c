/* worker/cpu/norm.c - batch normalisation: scale and shift from statistics, its backward in two passes over memory, running statistics. */
#include "worker/kernels/norm.h"

#include <errno.h>

#include "worker/core/tree.h"
#include "worker/cpu/elem.h"
#include "worker/cpu/pool4.h"
#include "worker/cpu/rows.h"
#include "worker/kernels/reduce.h"

enum {
    BLOCK = 32, /* channels whose sums stay in registers while a slab goes by */
    STREAM_BYTES = 4 << 20,
    AHEAD = 256 /* floats asked for before they are needed: reading two streams without writing leaves the hardware's guesses behind */
};

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

/* ---- gradients of maxima of 2 x 2 windows, spread while they are read ---- */

/* What is done to some channels. */
struct channels {
    vec scale, shift, slope, mean, invstd;
};

SIMD_FN struct channels channels_of(const struct affine *act, const float *mean, const float *invstd, int k, int n)
{
    return (struct channels){ vload_n(act->scale + k, n), vload_n(act->shift + k, n), vload_n(act->slope + k, n), vload_n(mean + k, n),
                              vload_n(invstd + k, n) };
}

static bool is_pooled(const struct operand *x, const struct tensor *da)
{
    return da->h != x->x.h;
}

/* Some channels of part of a row of pixels, and what is in the windows that it is part of. */
struct span4 {
    const void *row[2], *da; /* the window's rows, and the gradient of its maximum, at the window of pixel `from` */
    ptrdiff_t step, da_step; /* numbers of a pixel */
    int from, to;            /* columns */
    bool lower;              /* it is the window's second row */
    size_t first;            /* pixel `from`, of all */
};

/* The part of pixels [p, end) that is in p's row. Rows of all images are counted on, as their number is even. */
SIMD_FN struct span4 span_of(const struct operand *o, const struct tensor *da, size_t p, size_t end, bool half)
{
    const size_t w = (size_t)o->x.w, row = p / w, from = p % w, left = w - from < end - p ? w - from : end - p;
    struct span4 s = {
        .step = o->x.stride, .da_step = da->stride, .from = (int)from, .to = (int)(from + left), .lower = row % 2 != 0, .first = p
    };

    s.row[0] = elem_row(&o->x, row / 2 * 2 * w + from / 2 * 2, half);
    s.row[1] = elem_at(s.row[0], (ptrdiff_t)w * s.step, half);
    s.da = elem_row(da, row / 2 * (w / 2) + from / 2, half);
    return s;
}

/* norm_dy() and norm_xhat() of one pixel. */
struct pixel4 {
    vec dy, xhat;
};

/* Corners first ... first + count of a window, of channels k ... k + n. */
SIMD_FN void window_pixels(const struct span4 *s, ptrdiff_t at, const struct channels *ch, int k, int n, int first, int count, bool half,
                           struct pixel4 *ret)
{
    const vec g = elem_load_n(s->da, at / 2 * s->da_step + k, n, half);
    vec x[4], t[4];
    struct pool4 wins;

    __builtin_prefetch(elem_at(s->row[0], at * s->step + k + AHEAD, half));
    __builtin_prefetch(elem_at(s->row[1], at * s->step + k + AHEAD, half));
    __builtin_prefetch(elem_at(s->row[0], (at + 1) * s->step + k + AHEAD, half));
    __builtin_prefetch(elem_at(s->row[1], (at + 1) * s->step + k + AHEAD, half));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = elem_load_n(s->row[i / 2], (at + i % 2) * s->step + k, n, half);
        t[i] = vfma(x[i], ch->scale, ch->shift);
    }
    wins = pool4_wins(vact(t[0], ch->slope), vact(t[1], ch->slope), vact(t[2], ch->slope), vact(t[3], ch->slope));
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        vec d = pool4_grad(&wins, first + i, vset1(0.0f), g);

        ret[i].dy = vslope(t[first + i], d, ch->slope);
        ret[i].xhat = vmul(vsub(x[first + i], ch->mean), ch->invstd);
    }
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

/* norm_slab() of `width` channels from channel k on; width is a constant wherever it matters. */
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
            __builtin_prefetch(elem_at(x, i + AHEAD, half));
            __builtin_prefetch(elem_at(da, i + AHEAD, half));
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

/* The same of gradients of maxima, of channels k ... k + n of a span. */
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

        if (is_pooled(&a->x[v], &a->da[v])) {
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

/* 16 of a shard's 2c sums: the pairwise tree over its slabs. */
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

struct apply_args {
    const struct operand *x;
    const float *const *mean, *const *invstd;
    struct tensor *dx;
    const struct tensor *da;
    float *means; /* shard by shard [2][c]: mean of dy, mean of dy * xhat; NULL: statistics are frozen */
};

static size_t apply_pixels(const void *arg, int v)
{
    const struct apply_args *a = arg;

    return cpu_pixels(&a->dx[v]);
}

static float *means_of(const struct apply_args *a, int v)
{
    float *m = a->means;

    for (int i = 0; i < v; i++)
        m += 2 * a->da[i].c;
    return m;
}

KERNEL_FN void apply_rows(const struct apply_args *a, int v, size_t from, size_t to, bool half)
{
    const struct operand *o = &a->x[v];
    const float *scale = o->act.scale, *shift = o->act.shift, *slope = o->act.slope, *mean = a->mean[v], *invstd = a->invstd[v];
    const float *mean_dy = means_of(a, v), *mean_dyxhat = mean_dy + a->da[v].c;
    int c = a->da[v].c;

    for (size_t p = from; p < to; p++) {
        const void *x = elem_row(&o->x, p, half), *da = elem_row(&a->da[v], p, half);
        void *dx = elem_row(&a->dx[v], p, half);

        CPU_LANES
        for (int k = 0; k < c; k++) {
            float f = elem_get(x, k, half), dy = norm_dy(elem_get(da, k, half), f, scale[k], shift[k], slope[k]);

            elem_set(dx, k, norm_dx(dy, norm_xhat(f, mean[k], invstd[k]), scale[k], mean_dy[k], mean_dyxhat[k]), half);
        }
    }
}

/* It is new, and too large to be found in a cache again: it is written past them. */
static bool streams(const struct tensor *dx)
{
    return VSTREAMS && tensor_count(dx) * dtype_bytes(dx->dtype) >= STREAM_BYTES && (uintptr_t)dx->data % 64 == 0 &&
           (dx->c == 16 || (dx->dtype == DTYPE_F32 && dx->c % 16 == 0)) && dx->stride == dx->c; /* a line's halves follow each other */
}

/* Where and how norm_dx() is written. */
struct apply4 {
    struct channels ch;
    vec mean_dy, mean_dyxhat;
    bool stream;
};

SIMD_FN void apply_pixel(const struct apply4 *a, const struct pixel4 *px, void *to, int n, bool half)
{
    const vec y = vmul(a->ch.scale, vfma(vmul(px->xhat, vset1(-1.0f)), a->mean_dyxhat, vsub(px->dy, a->mean_dy)));

    if (a->stream && half)
        vstream_half(to, y);
    else if (a->stream)
        vstream(to, y);
    else
        elem_store_n(to, 0, y, n, half);
}

/* The pixels of a span that is part of a row. */
SIMD_FN void apply_span(const struct apply4 *a, struct tensor *dx, const struct span4 *s, int k, int n, bool lower, bool half)
{
    for (int x = s->from / 2 * 2; x < s->to; x += 2) {
        struct pixel4 px[2];
        void *to = elem_at(elem_row(dx, s->first, half), (ptrdiff_t)(x - s->from) * dx->stride + k, half);

        window_pixels(s, x - s->from / 2 * 2, &a->ch, k, n, lower ? 2 : 0, 2, half, px);
        if (x >= s->from)
            apply_pixel(a, &px[0], to, n, half);
        if (x + 1 < s->to)
            apply_pixel(a, &px[1], elem_at(to, dx->stride, half), n, half);
    }
}

/* Of one that is an upper row, those of the row below, too: what a window's pixels have in common is computed once. */
SIMD_FN void apply_windows(const struct apply4 *a, struct tensor *dx, const struct span4 *s, int k, int n, bool half)
{
    for (int x = 0; x < s->to; x += 2) {
        struct pixel4 px[4];
        void *to = elem_at(elem_row(dx, s->first, half), (ptrdiff_t)x * dx->stride + k, half);
        void *below = elem_at(to, (ptrdiff_t)s->to * dx->stride, half);

        window_pixels(s, x, &a->ch, k, n, 0, 4, half, px);
        apply_pixel(a, &px[0], to, n, half);
        apply_pixel(a, &px[1], elem_at(to, dx->stride, half), n, half);
        apply_pixel(a, &px[2], below, n, half);
        apply_pixel(a, &px[3], elem_at(below, dx->stride, half), n, half);
    }
}

/* The same of gradients of maxima. */
SIMD_FN void apply_pooled(const struct apply_args *a, int v, size_t from, size_t to, bool half)
{
    const struct operand *o = &a->x[v];
    const float *mean_dy = means_of(a, v), *mean_dyxhat = mean_dy + o->x.c;
    const size_t w = (size_t)o->x.w;
    const bool stream = streams(&a->dx[v]);

    for (size_t p = from; p < to;) {
        const struct span4 s = span_of(o, &a->da[v], p, to, half);
        const bool both = !s.lower && s.from == 0 && p + 2 * w <= to && w % 2 == 0;

        for (int k = 0; k < o->x.c; k += VW) {
            const int n = vlanes(o->x.c, k);
            struct apply4 q = { channels_of(&o->act, a->mean[v], a->invstd[v], k, n), vload_n(mean_dy + k, n), vload_n(mean_dyxhat + k, n),
                                false };

            if (both && stream) {
                q.stream = true;
                apply_windows(&q, &a->dx[v], &s, k, VW, half);
            } else if (both && n == VW)
                apply_windows(&q, &a->dx[v], &s, k, VW, half);
            else if (both)
                apply_windows(&q, &a->dx[v], &s, k, n, half);
            else /* few: not past the caches */
                apply_span(&q, &a->dx[v], &s, k, n, s.lower, half);
        }
        p += both ? 2 * w : (size_t)(s.to - s.from);
    }
    if (stream)
        vstream_end();
}

KERNEL_FN void apply_frozen_rows(const struct apply_args *a, int v, size_t from, size_t to, bool half)
{
    const struct operand *o = &a->x[v];
    const float *scale = o->act.scale, *shift = o->act.shift, *slope = o->act.slope;
    int c = a->da[v].c;

    for (size_t p = from; p < to; p++) {
        const void *x = elem_row(&o->x, p, half), *da = elem_row(&a->da[v], p, half);
        void *dx = elem_row(&a->dx[v], p, half);

        CPU_LANES
        for (int k = 0; k < c; k++)
            elem_set(dx, k, scale[k] * norm_dy(elem_get(da, k, half), elem_get(x, k, half), scale[k], shift[k], slope[k]), half);
    }
}

static void apply_part(const void *arg, int v, size_t from, size_t to)
{
    const struct apply_args *a = arg;

    if (is_pooled(&a->x[v], &a->da[v]))
        ELEM_CALL(a->dx[v].dtype, apply_pooled, a, v, from, to);
    else
        ELEM_CALL(a->dx[v].dtype, apply_rows, a, v, from, to);
}

static void apply_frozen_part(const void *arg, int v, size_t from, size_t to)
{
    const struct apply_args *a = arg;

    ELEM_CALL(a->dx[v].dtype, apply_frozen_rows, a, v, from, to);
}

int cpu_norm_bwd_apply(struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean,
                       const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err)
{
    struct apply_args a = { x, mean, invstd, dx, da, NULL };
    size_t floats = 0;

    if (!sums) {
        cpu_over_shards(dev, &(struct shard_work){ nshards, apply_pixels, apply_frozen_part, &a });
        return 0;
    }
    for (int v = 0; v < nshards; v++)
        floats += 2 * (size_t)da[v].c;
    a.means = cpu_scratch(dev, floats * sizeof(float), err);
    if (!a.means)
        return -ENOMEM;
    for (int v = 0; v < nshards; v++)
        for (int k = 0; k < 2 * da[v].c; k++)
            means_of(&a, v)[k] = (float)(sums[v][k] / stats[v][0]);
    cpu_over_shards(dev, &(struct shard_work){ nshards, apply_pixels, apply_part, &a });
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
