/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/photo.h - SSIM over windows of 3 x 3 with mirrored borders,
 * robust distances, noise, and their ways back. Specs featdepth sections 3.1 to 3.4; variances are centred: E[x^2] -
 * E[x]^2 loses digits where a picture is plain. */
#pragma once
#include <stdbool.h>

#include "worker/kernels/act.h"
#include "worker/kernels/philox.h"
#include "worker/ops/photo.h"

#define SSIM_C1    1e-4f
#define SSIM_C2    9e-4f
#define ROBUST_EPS 1e-6f

enum {
    PHOTO_LANES = 16, /* sums over channels and rows: number i goes to lane i mod 16, lanes are added in pairs */
    PHOTO_WINDOW = 9,
};

/* -1 is 1, n is n - 2. */
KERNEL_FN int photo_mirror(int i, int n)
{
    return i < 0 ? -i : i < n ? i : 2 * n - 2 - i;
}

/* How often cell q is in the window around p, of n along this axis: mirrored cells count again. */
KERNEL_FN float photo_times(int q, int p, int n)
{
    if (p < 0 || p >= n || p - q > 1 || q - p > 1)
        return 0.0f;
    return 1.0f + (float)((p == 0 && q == 1) + (p == n - 1 && q == n - 2));
}

KERNEL_FN float robust(float d)
{
    return sqrtf(fmaf(d, d, ROBUST_EPS));
}

/* ---- a window ---- */

struct ssim_window {
    float mx, my, sx, sy, sxy; /* means, variances, covariance */
};

KERNEL_FN float window_row(const float *r, int step)
{
    return (r[-step] + r[0]) + r[step];
}

/* sum + (x - mx)(y - my) over a row. */
KERNEL_FN float window_products(const float *x, float mx, const float *y, float my, int step, float sum)
{
    sum = fmaf(x[-step] - mx, y[-step] - my, sum);
    sum = fmaf(x[0] - mx, y[0] - my, sum);
    return fmaf(x[step] - mx, y[step] - my, sum);
}

KERNEL_FN float window_all(const float *x0, const float *x1, const float *x2, float mx, const float *y0, const float *y1, const float *y2,
                           float my, int step)
{
    return window_products(x2, mx, y2, my, step, window_products(x1, mx, y1, my, step, window_products(x0, mx, y0, my, step, 0.0f))) *
           (1.0f / PHOTO_WINDOW);
}

/* x0, x1, x2: the window's middle column in its three rows; its neighbours stand `step` before and behind. */
KERNEL_FN struct ssim_window ssim_window(const float *x0, const float *x1, const float *x2, const float *y0, const float *y1,
                                         const float *y2, int step)
{
    struct ssim_window w;

    w.mx = ((window_row(x0, step) + window_row(x1, step)) + window_row(x2, step)) * (1.0f / PHOTO_WINDOW);
    w.my = ((window_row(y0, step) + window_row(y1, step)) + window_row(y2, step)) * (1.0f / PHOTO_WINDOW);
    w.sx = window_all(x0, x1, x2, w.mx, x0, x1, x2, w.mx, step);
    w.sy = window_all(y0, y1, y2, w.my, y0, y1, y2, w.my, step);
    w.sxy = window_all(x0, x1, x2, w.mx, y0, y1, y2, w.my, step);
    return w;
}

/* ---- SSIM of a window ---- */

struct ssim {
    float n1, n2, d1, d2, inv, s; /* s = n1 n2 / (d1 d2); inv = 1 / (d1 d2) */
    float loss;                   /* (1 - s) / 2, before it is cut to 0 .. 1 */
};

KERNEL_FN struct ssim ssim_of(const struct ssim_window *w)
{
    struct ssim r;

    r.n1 = fmaf(2.0f * w->mx, w->my, SSIM_C1);
    r.n2 = fmaf(2.0f, w->sxy, SSIM_C2);
    r.d1 = fmaf(w->mx, w->mx, fmaf(w->my, w->my, SSIM_C1));
    r.d2 = (w->sx + w->sy) + SSIM_C2;
    r.inv = 1.0f / (r.d1 * r.d2);
    r.s = r.n1 * r.n2 * r.inv;
    r.loss = 0.5f - 0.5f * r.s;
    return r;
}

/* A channel's part of a pixel of the map. x, y: the pixel's. */
KERNEL_FN float photo_value(float ssim_weight, const struct ssim_window *w, float x, float y)
{
    float loss = ssim_of(w).loss;

    loss = loss < 0.0f ? 0.0f : loss;
    loss = loss > 1.0f ? 1.0f : loss;
    return fmaf(ssim_weight, loss, (1.0f - ssim_weight) * robust(x - y));
}

/* A window's part of the gradient of each of its cells: a + b * x + c * y. */
struct ssim_share {
    float a, b, c;
};

/* g: the gradient of the window's loss. */
KERNEL_FN struct ssim_share ssim_share(const struct ssim_window *w, float g)
{
    struct ssim r = ssim_of(w);
    float by = r.loss >= 0.0f && r.loss <= 1.0f ? g * (-0.5f / PHOTO_WINDOW) : 0.0f;
    float dmu = 2.0f * (w->my * r.n2 - w->mx * (r.s * r.d2)) * r.inv, dsx = -(r.s * r.d1) * r.inv, dsxy = 2.0f * r.n1 * r.inv;
    struct ssim_share a;

    a.b = by * (2.0f * dsx);
    a.c = by * dsxy;
    a.a = fmaf(by, dmu, -fmaf(a.b, w->mx, a.c * w->my));
    return a;
}

/* The gradient of a cell x beside y, from the sums of its windows' shares and its own pixel's distance. g: as above,
 * but of the distance. */
KERNEL_FN float photo_slope(float a, float b, float c, float x, float y, float g)
{
    float d = x - y;

    return fmaf(g, d / robust(d), fmaf(b, x, fmaf(c, y, a)));
}

/* ---- the least ---- */

KERNEL_FN bool photo_less(float v, float than)
{
    return v < than || (v != v && than == than);
}

KERNEL_FN float photo_uniform(uint32_t word, float scale)
{
    return (float)((int32_t)(word >> 8) - 8388608) * scale;
}

/* scale of photo_uniform(). */
static inline float photo_uniform_scale(float sigma)
{
    return (float)(1.7320508075688772 / 8388608.0 * (double)sigma);
}

/* Box-Muller: see philox_normal(). */
KERNEL_FN float photo_normal(const struct philox_key *k, uint64_t element, float sigma)
{
    const double step = 1.0 / 4294967296.0;
    uint32_t word[4];
    double radius;

    philox_block_of(k, element / 2, word);
    radius = sqrt(-2.0 * math_log64(((double)(element % 2 ? word[2] : word[0]) + 1.0) * step));
    return (float)(radius * math_cos_turns64((double)(element % 2 ? word[3] : word[1]) * step) * (double)sigma);
}

KERNEL_FN float photo_noise(enum automask_kind kind, const struct philox_key *k, uint64_t element, float sigma, float scale)
{
    uint32_t word[4];

    if (kind == AUTOMASK_NONE)
        return 0.0f;
    if (kind == AUTOMASK_NORMAL)
        return photo_normal(k, element, sigma);
    philox_block_of(k, element / 4, word);
    return photo_uniform(word[element % 4], scale);
}

/* Gradient of a pixel; pixels: number in the shard. */
static inline float photo_pixel_grad(float weight, float grad_scale, size_t pixels)
{
    return (float)((double)weight * (double)grad_scale / (double)pixels);
}
