/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/norm_apply.c - see norm_apply.h. */
#include "worker/cpu/norm_apply.h"

#include <errno.h>

#include "worker/cpu/norm_pooled.h"
#include "worker/cpu/rows.h"
#include "worker/kernels/norm.h"

enum { STREAM_BYTES = 4 << 20 };

/* The inputs of one shard. */
struct shard {
    const struct operand *x;
    const struct tensor *da;
    const float *mean, *invstd, *mean_dy, *mean_dyxhat; /* [c]; NULL: statistics are frozen */
};

static struct shard shard_of(const struct norm_grad *g, const float *means, int v)
{
    struct shard s = { .x = &g->x[v], .da = &g->da[v] };

    if (!g->sums)
        return s;
    s.mean = g->mean[v];
    s.invstd = g->invstd[v];
    for (int i = 0; i < v; i++)
        means += 2 * g->da[i].c;
    s.mean_dy = means;
    s.mean_dyxhat = means + s.da->c;
    return s;
}

/* The destination of pixels: the first one, the step to the next one and to the one below. */
struct place {
    void *at;
    ptrdiff_t step, below;
    bool stream; /* past the caches */
};

/* ---- gradients of all pixels ---- */

/* Channels [k0, k0 + cols) of pixels [from, to). */
KERNEL_FN void apply_rows(const struct shard *s, size_t from, size_t to, int k0, int cols, const struct place *at, bool half)
{
    const float *scale = s->x->act.scale + k0, *shift = s->x->act.shift + k0, *slope = s->x->act.slope + k0;
    const float *mean = s->mean + k0, *invstd = s->invstd + k0, *mean_dy = s->mean_dy + k0, *mean_dyxhat = s->mean_dyxhat + k0;

    for (size_t p = from; p < to; p++) {
        const void *x = elem_at(elem_row(&s->x->x, p, half), k0, half), *da = elem_at(elem_row(s->da, p, half), k0, half);
        void *dx = elem_at(at->at, (ptrdiff_t)(p - from) * at->step, half);

        CPU_LANES
        for (int k = 0; k < cols; k++) {
            float f = elem_get(x, k, half), dy = norm_dy(elem_get(da, k, half), f, scale[k], shift[k], slope[k]);

            elem_set(dx, k, norm_dx(dy, norm_xhat(f, mean[k], invstd[k]), scale[k], mean_dy[k], mean_dyxhat[k]), half);
        }
    }
}

KERNEL_FN void apply_frozen_rows(const struct shard *s, size_t from, size_t to, int k0, int cols, const struct place *at, bool half)
{
    const float *scale = s->x->act.scale + k0, *shift = s->x->act.shift + k0, *slope = s->x->act.slope + k0;

    for (size_t p = from; p < to; p++) {
        const void *x = elem_at(elem_row(&s->x->x, p, half), k0, half), *da = elem_at(elem_row(s->da, p, half), k0, half);
        void *dx = elem_at(at->at, (ptrdiff_t)(p - from) * at->step, half);

        CPU_LANES
        for (int k = 0; k < cols; k++)
            elem_set(dx, k, scale[k] * norm_dy(elem_get(da, k, half), elem_get(x, k, half), scale[k], shift[k], slope[k]), half);
    }
}

static void apply(const struct shard *s, size_t from, size_t to, int k, int cols, const struct place *at)
{
    if (s->mean_dy)
        ELEM_CALL(s->da->dtype, apply_rows, s, from, to, k, cols, at);
    else
        ELEM_CALL(s->da->dtype, apply_frozen_rows, s, from, to, k, cols, at);
}

/* ---- gradients of maxima ---- */

/* Some channels and their means. */
struct apply4 {
    struct channels ch;
    vec mean_dy, mean_dyxhat;
};

SIMD_FN void apply_pixel(const struct apply4 *a, const struct pixel4 *px, void *to, int n, bool stream, bool half)
{
    const vec y = vmul(a->ch.scale, vfma(vmul(px->xhat, vset1(-1.0f)), a->mean_dyxhat, vsub(px->dy, a->mean_dy)));

    if (stream && half)
        vstream_half(to, y);
    else if (stream)
        vstream(to, y);
    else
        elem_store_n(to, 0, y, n, half);
}

/* The pixels of a span in one row. */
SIMD_FN void apply_span(const struct apply4 *a, const struct span4 *s, const struct place *at, int k, int n, bool lower, bool half)
{
    for (int x = s->from / 2 * 2; x < s->to; x += 2) {
        struct pixel4 px[2];
        void *to = elem_at(at->at, (ptrdiff_t)(x - s->from) * at->step, half);

        window_pixels(s, x - s->from / 2 * 2, &a->ch, k, n, lower ? 2 : 0, 2, half, px);
        if (x >= s->from)
            apply_pixel(a, &px[0], to, n, false, half);
        if (x + 1 < s->to)
            apply_pixel(a, &px[1], elem_at(to, at->step, half), n, false, half);
    }
}

/* The pixels of whole windows, including the row below. Values shared by the pixels of a window are computed once. */
SIMD_FN void apply_windows(const struct apply4 *a, const struct span4 *s, const struct place *at, int k, int n, bool stream, bool half)
{
    for (int x = 0; x < s->to - s->from; x += 2) {
        struct pixel4 px[4];
        void *to = elem_at(at->at, (ptrdiff_t)x * at->step, half), *below = elem_at(to, at->below, half);

        window_pixels(s, x, &a->ch, k, n, 0, 4, half, px);
        apply_pixel(a, &px[0], to, n, stream, half);
        apply_pixel(a, &px[1], elem_at(to, at->step, half), n, stream, half);
        apply_pixel(a, &px[2], below, n, stream, half);
        apply_pixel(a, &px[3], elem_at(below, at->step, half), n, stream, half);
    }
}

/* Channels [k0, k0 + cols) of a span. both: also of the row below it. */
SIMD_FN void apply_pooled(const struct shard *s, const struct span4 *span, bool both, int k0, int cols, const struct place *at, bool half)
{
    for (int k = k0; k < k0 + cols; k += VW) {
        const int n = vlanes(k0 + cols, k);
        const struct apply4 q = { channels_of(&s->x->act, s->mean, s->invstd, k, n), vload_n(s->mean_dy + k, n),
                                  vload_n(s->mean_dyxhat + k, n) };
        struct place to = *at;

        to.at = elem_at(at->at, k - k0, half);
        if (both && at->stream)
            apply_windows(&q, span, &to, k, VW, true, half);
        else if (both && n == VW)
            apply_windows(&q, span, &to, k, VW, false, half);
        else if (both)
            apply_windows(&q, span, &to, k, n, false, half);
        else if (n == VW) /* few: not written past the caches */
            apply_span(&q, span, &to, k, VW, span->lower, half);
        else
            apply_span(&q, span, &to, k, n, span->lower, half);
    }
}

SIMD_FN void pooled_pixels(const struct shard *s, size_t from, size_t to, struct tensor *dx, bool stream, bool half)
{
    const size_t w = (size_t)s->x->x.w;

    for (size_t p = from; p < to;) {
        const struct span4 span = span_of(s->x, s->da, p, to, half);
        const bool both = !span.lower && span.from == 0 && p + 2 * w <= to;
        const struct place at = { elem_row(dx, p, half), dx->stride, (ptrdiff_t)w * dx->stride, stream };

        apply_pooled(s, &span, both, 0, s->x->x.c, &at, half);
        p += both ? 2 * w : (size_t)(span.to - span.from);
    }
    if (stream)
        vstream_end();
}

/* Pixels [from, to) of one row of a piece. */
SIMD_FN void pooled_row(const struct shard *s, size_t from, size_t to, const struct norm_piece *p, void *at, ptrdiff_t step, bool half)
{
    for (size_t i = from; i < to;) {
        const struct span4 span = span_of(s->x, s->da, i, to, half);
        const struct place place = { elem_at(at, (ptrdiff_t)(i - from) * step, half), step, 0, false };

        apply_pooled(s, &span, false, p->k, p->cols, &place, half);
        i += (size_t)(span.to - span.from);
    }
}

/* An upper row of a piece and the row below it: whole windows, and the columns of cut windows at its ends. */
SIMD_FN void pooled_rows(const struct shard *s, size_t first, const struct norm_piece *p, void *at, ptrdiff_t step, bool half)
{
    const size_t w = (size_t)p->w, left = first % (size_t)s->x->x.w % 2, right = (left + w) % 2, end = first + w - right;
    const ptrdiff_t below = p->w * step;

    if (first + left < end) {
        const struct span4 span = span_of(s->x, s->da, first + left, end, half);

        apply_pooled(s, &span, true, p->k, p->cols, &(struct place){ elem_at(at, (ptrdiff_t)left * step, half), step, below, false }, half);
    }
    for (int y = 0; y < 2; y++, first += (size_t)p->pitch, at = elem_at(at, below, half)) {
        pooled_row(s, first, first + left, p, at, step, half);
        pooled_row(s, first + w - right, first + w, p, elem_at(at, (ptrdiff_t)(w - right) * step, half), step, half);
    }
}

/* A piece with several rows stays inside of a row of the image. */
SIMD_FN void pooled_piece(const struct shard *s, const struct norm_piece *p, void *to, ptrdiff_t step, bool half)
{
    for (int y = 0; y < p->h;) {
        const size_t first = p->first + (size_t)y * (size_t)p->pitch;
        const bool both = first / (size_t)s->x->x.w % 2 == 0 && y + 1 < p->h;
        void *at = elem_at(to, (ptrdiff_t)y * p->w * step, half);

        if (both)
            pooled_rows(s, first, p, at, step, half);
        else
            pooled_row(s, first, first + (size_t)p->w, p, at, step, half);
        y += both ? 2 : 1;
    }
}

/* ---- pieces ---- */

size_t norm_means_count(const struct norm_grad *g, int nshards)
{
    size_t n = 0;

    for (int v = 0; v < nshards && g->sums; v++)
        n += 2 * (size_t)g->da[v].c;
    return n;
}

void norm_means(const struct norm_grad *g, int nshards, float *ret)
{
    for (int v = 0; v < nshards && g->sums; v++)
        for (int k = 0; k < 2 * g->da[v].c; k++)
            *ret++ = (float)(g->sums[v][k] / g->stats[v][0]);
}

void norm_apply_piece(const struct norm_grad *g, const float *means, const struct norm_piece *p, void *to, ptrdiff_t step)
{
    const struct shard s = shard_of(g, means, p->shard);
    const bool half = s.da->dtype == DTYPE_BF16;

    if (norm_is_pooled(s.x, s.da)) {
        ELEM_CALL(s.da->dtype, pooled_piece, &s, p, to, step);
        return;
    }
    for (int y = 0; y < p->h; y++) {
        const size_t first = p->first + (size_t)y * (size_t)p->pitch;
        const struct place at = { elem_at(to, y * p->w * step, half), step, 0, false };

        apply(&s, first, first + (size_t)p->w, p->k, p->cols, &at);
    }
}

/* ---- the op ---- */

struct apply_args {
    const struct norm_grad *g;
    const float *means;
    struct tensor *dx;
};

static size_t apply_pixels(const void *arg, int v)
{
    const struct apply_args *a = arg;

    return cpu_pixels(&a->dx[v]);
}

/* True if the result is new, and too large to stay in a cache: it is written past the caches. */
static bool streams(const struct tensor *dx)
{
    return VSTREAMS && tensor_count(dx) * dtype_bytes(dx->dtype) >= STREAM_BYTES && (uintptr_t)dx->data % 64 == 0 &&
           (dx->c == 16 || (dx->dtype == DTYPE_F32 && dx->c % 16 == 0)) && dx->stride == dx->c; /* a line's halves are written in a row */
}

static void apply_part(const void *arg, int v, size_t from, size_t to)
{
    const struct apply_args *a = arg;
    const struct shard s = shard_of(a->g, a->means, v);
    struct tensor *dx = &a->dx[v];
    const struct place at = { elem_row(dx, from, dx->dtype == DTYPE_BF16), dx->stride, 0, false };

    if (norm_is_pooled(s.x, s.da))
        ELEM_CALL(dx->dtype, pooled_pixels, &s, from, to, dx, streams(dx));
    else
        apply(&s, from, to, 0, s.da->c, &at);
}

int cpu_norm_bwd_apply(struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean,
                       const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err)
{
    const struct norm_grad g = { da, x, mean, invstd, sums, stats };
    float *means = sums ? cpu_scratch(dev, norm_means_count(&g, nshards) * sizeof *means, err) : NULL;
    struct apply_args a = { &g, means, dx };

    if (sums && !means)
        return -ENOMEM;
    norm_means(&g, nshards, means);
    cpu_over_shards(dev, &(struct shard_work){ nshards, apply_pixels, apply_part, &a });
    return 0;
}
