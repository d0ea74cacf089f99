/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/warp.h - shared by warps: the images of a call, and a piece of a
 * row of the target with the places of its pixels in the source. */
#pragma once
#include <assert.h>
#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/rows.h"
#include "worker/kernels/warp.h"

enum { QUAD = 4 /* channels that form one short vector; more are done in vectors of the ISA */ };

struct warp_args {
    const struct tensor *disp;
    struct warp_image *image; /* of all shards */
    struct warp_view *view;
    int *first;        /* [nshards]: a shard's first image */
    double *sums;      /* [rows of all images][pieces][WARP_SUMS], NULL: the pose's gradient is not wanted */
    size_t *first_sum; /* [images] */
    float beta_disp, beta_pose;
};

/* Tables of all images, and `more` bytes behind them. NULL: out of memory. */
void *warp_start(struct warp_args *a, struct device *dev, const struct warp *w, const struct warp_in *in, const struct tensor *y,
                 int nshards, size_t more, struct err *err);
/* Units of a struct shard_work over warp_args: rows of the target. */
size_t warp_rows(const void *arg, int v);

struct warp_piece {
    float z[WARP_PIECE], r[WARP_PIECE], px[WARP_PIECE], py[WARP_PIECE], fx[WARP_PIECE], fy[WARP_PIECE], disp[WARP_PIECE];
    int32_t x0[WARP_PIECE], y0[WARP_PIECE], in_x[WARP_PIECE], in_y[WARP_PIECE], cell[WARP_PIECE];
    struct warp_weights w[WARP_PIECE];
};

/* Places of n pixels of row y from `from` on; p->w stays unchanged. */
void warp_place(struct warp_piece *restrict p, const struct warp_image *m, const struct warp_view *view, int y, int from, int n);

/* ---- up to four channels ---- */

typedef float quad __attribute__((vector_size(QUAD * sizeof(float))));
typedef int32_t quad_mask __attribute__((vector_size(QUAD * sizeof(int32_t))));

SIMD_FN quad quad_load(const float *p)
{
    quad q;

    memcpy(&q, p, sizeof q);
    return q;
}

SIMD_FN quad quad_load_n(const float *p, int n)
{
    quad q = { 0 };

    memcpy(&q, p, (size_t)n * sizeof *p);
    return q;
}

SIMD_FN quad quad_set1(float f)
{
    return (quad){ f, f, f, f };
}

SIMD_FN quad quad_fma(quad a, quad b, quad c)
{
#if defined(__FMA__)
    return (quad)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
    return (quad){ fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]), fmaf(a[3], b[3], c[3]) };
#endif
}

/* Numbers of an image that a load of four may touch: the next pixel's numbers follow a pixel's channels, and foreign
 * memory follows the last one's. */
SIMD_FN size_t reach(int h, int w, int stride, int c)
{
    return ((size_t)h * (size_t)w - 1) * (size_t)stride + (size_t)c;
}

struct corners {
    quad v[4];
};

SIMD_FN struct corners corners(const float *source, size_t at, size_t right, size_t below, size_t limit, int c)
{
    struct corners r;

    if (at + right + below + QUAD <= limit) {
        r.v[0] = quad_load(source + at);
        r.v[1] = quad_load(source + at + right);
        r.v[2] = quad_load(source + at + below);
        r.v[3] = quad_load(source + at + right + below);
        return r;
    }
    r.v[0] = quad_load_n(source + at, c);
    r.v[1] = quad_load_n(source + at + right, c);
    r.v[2] = quad_load_n(source + at + below, c);
    r.v[3] = quad_load_n(source + at + right + below, c);
    return r;
}
