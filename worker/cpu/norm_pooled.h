/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/norm_pooled.h - gradients of maxima of 2 x 2 windows, spread
 * while the backward of a normalisation reads them. */
#pragma once
#include "worker/cpu/elem.h"
#include "worker/cpu/pool4.h"
#include "worker/ops/operand.h"

/* Floats to prefetch ahead: reading two streams without writing defeats the hardware's prefetching. */
enum { NORM_AHEAD = 256 };

/* The normalisation of some channels. */
struct channels {
    vec scale, shift, slope, mean, invstd;
};

SIMD_FN struct channels channels_of(const struct affine *act, const float *mean, const float *invstd, int k, int n)
{
    return (struct channels){ vload_n(act->scale + k, n), vload_n(act->shift + k, n), vload_n(act->slope + k, n), vload_n(mean + k, n),
                              vload_n(invstd + k, n) };
}

static inline bool norm_is_pooled(const struct operand *x, const struct tensor *da)
{
    return da->h != x->x.h;
}

/* Some channels of part of a row of pixels, and the windows that it is part of. */
struct span4 {
    const void *row[2], *da; /* the window's rows, and the gradient of its maximum, at the window of pixel `from` */
    ptrdiff_t step, da_step; /* numbers of a pixel */
    int from, to;            /* columns */
    bool lower;              /* it is the window's second row */
};

/* The part of pixels [p, end) that is in p's row. Rows of all images are counted on, as their number is even. */
SIMD_FN struct span4 span_of(const struct operand *o, const struct tensor *da, size_t p, size_t end, bool half)
{
    const size_t w = (size_t)o->x.w, row = p / w, from = p % w, left = w - from < end - p ? w - from : end - p;
    struct span4 s = { .step = o->x.stride, .da_step = da->stride, .from = (int)from, .to = (int)(from + left), .lower = row % 2 != 0 };

    s.row[0] = elem_row(&o->x, row / 2 * 2 * w + from / 2 * 2, half);
    s.row[1] = elem_at(s.row[0], (ptrdiff_t)w * s.step, half);
    s.da = elem_row(da, row / 2 * (w / 2) + from / 2, half);
    return s;
}

/* norm_dy() and norm_xhat() of a pixel. */
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

    __builtin_prefetch(elem_at(s->row[0], at * s->step + k + NORM_AHEAD, half));
    __builtin_prefetch(elem_at(s->row[1], at * s->step + k + NORM_AHEAD, half));
    __builtin_prefetch(elem_at(s->row[0], (at + 1) * s->step + k + NORM_AHEAD, half));
    __builtin_prefetch(elem_at(s->row[1], (at + 1) * s->step + k + NORM_AHEAD, half));
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
