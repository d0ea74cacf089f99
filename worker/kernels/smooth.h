/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/smooth.h - edge-aware smoothness: the weight of a pixel's
 * differences, their part of the loss, and the loss's gradient by one number. Specs featdepth sections 3.5 and 3.6. */
#pragma once
#include "worker/kernels/math.h"
#include "worker/ops/smooth.h"

/* ---- the picture ---- */

/* Colour k of pixel (y, x) of a picture of H x W, reduced to h x w by area. */
KERNEL_FN float smooth_area(const float *picture, int stride, int H, int W, int h, int w, int y, int x, int k)
{
    int y0 = (int)((int64_t)y * H / h), y1 = (int)(((int64_t)(y + 1) * H + h - 1) / h);
    int x0 = (int)((int64_t)x * W / w), x1 = (int)(((int64_t)(x + 1) * W + w - 1) / w);
    float sum = 0.0f;

    for (int i = y0; i < y1; i++)
        for (int j = x0; j < x1; j++)
            sum += picture[((size_t)i * (size_t)W + (size_t)j) * (size_t)stride + (size_t)k];
    return sum / (float)((y1 - y0) * (x1 - x0));
}

struct smooth_picture {
    const float *at; /* of the image */
    int stride, H, W, h, w;
};

/* Colours of the pixels from (y, x) on that the differences there read: the nearest corner of 3 x 3. Pixels beyond the
 * edge have the last pixel's colour. */
struct smooth_patch {
    float v[3][3][3]; /* [row][column][colour] */
};

KERNEL_FN void smooth_read(const struct smooth_picture *p, int y, int x, struct smooth_patch *ret)
{
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 3; k++)
                ret->v[i][j][k] = i + j > 2 ? 0.0f
                                            : smooth_area(p->at, p->stride, p->H, p->W, p->h, p->w, y + i < p->h ? y + i : p->h - 1,
                                                          x + j < p->w ? x + j : p->w - 1, k);
}

/* weight / count * exp(-edge * the mean over colours). d: absolute differences of the three colours. */
KERNEL_FN float smooth_weight(const struct smoothness *s, float weight, double count, const float d[3])
{
    float mean = (d[0] + d[1] + d[2]) / 3.0f;

    return (float)((double)weight / count * (double)math_exp(-s->edge * mean));
}

KERNEL_FN void smooth_edges(const struct smoothness *s, const struct smooth_picture *p, int y, int x, double numbers,
                            float ret[SMOOTH_EDGES])
{
    struct smooth_patch q;
    float dx[3], dy[3], dxx[3], dxy[3], dyy[3];
    bool right = x + 1 < p->w, right2 = x + 2 < p->w, down = y + 1 < p->h, down2 = y + 2 < p->h;
    double h = p->h, w = p->w;

    smooth_read(p, y, x, &q);
    for (int k = 0; k < 3; k++) {
        float to_right = q.v[0][1][k] - q.v[0][0][k], to_down = q.v[1][0][k] - q.v[0][0][k];

        dx[k] = fabsf(to_right);
        dy[k] = fabsf(to_down);
        dxx[k] = fabsf((q.v[0][2][k] - q.v[0][1][k]) - to_right);
        dxy[k] = fabsf((q.v[1][1][k] - q.v[1][0][k]) - to_right);
        dyy[k] = fabsf((q.v[2][0][k] - q.v[1][0][k]) - to_down);
    }
    ret[0] = right ? smooth_weight(s, s->first, numbers * h * (w - 1), dx) : 0.0f;
    ret[1] = down ? smooth_weight(s, s->first, numbers * (h - 1) * w, dy) : 0.0f;
    ret[2] = right2 ? smooth_weight(s, s->second, numbers * h * (w - 2), dxx) : 0.0f;
    /* xy and yx are one */
    ret[3] = right && down ? smooth_weight(s, 2.0f * s->second, numbers * (h - 1) * (w - 1), dxy) : 0.0f;
    ret[4] = down2 ? smooth_weight(s, s->second, numbers * (h - 2) * w, dyy) : 0.0f;
}

/* ---- the map ---- */

/* A channel of an image. */
struct smooth_plane {
    const float *x;    /* of pixel (0, 0) */
    const float *edge; /* of the image */
    int h, w, stride;
};

/* Steps to the neighbours of (y, x) in its differences. A neighbour beyond the edge is the pixel itself; the difference
 * then has weight 0. */
struct smooth_steps {
    size_t right, right2, down, down2; /* from pixel to pixel, in numbers */
};

KERNEL_FN struct smooth_steps smooth_steps(const struct smooth_plane *p, int y, int x)
{
    size_t row = (size_t)p->w * (size_t)p->stride;
    struct smooth_steps s;

    s.right = x + 1 < p->w ? (size_t)p->stride : 0;
    s.right2 = x + 2 < p->w ? 2 * (size_t)p->stride : 0;
    s.down = y + 1 < p->h ? row : 0;
    s.down2 = y + 2 < p->h ? 2 * row : 0;
    return s;
}

KERNEL_FN float smooth_value(const float *at, const struct smooth_steps *s, const float e[SMOOTH_EDGES])
{
    float f = at[0], right = at[s->right], down = at[s->down], both = at[s->right + s->down];
    float dx = right - f, dy = down - f, sum = fabsf(dx) * e[0];

    sum = fmaf(fabsf(dy), e[1], sum);
    sum = fmaf(fabsf((at[s->right2] - right) - dx), e[2], sum);
    sum = fmaf(fabsf((both - down) - dx), e[3], sum);
    return fmaf(fabsf((at[s->down2] - down) - dy), e[4], sum);
}

KERNEL_FN float smooth_sign(float d, float weight)
{
    return d > 0.0f ? weight : d < 0.0f ? -weight : 0.0f;
}

/* Weights of the differences that read number (y, x), and places of its neighbours. A missing neighbour is the number
 * itself, with weight 0. */
enum { SMOOTH_READERS = 14, SMOOTH_NEIGHBOURS = 12 };

struct smooth_readers {
    float w[SMOOTH_READERS];
    /* left 2, left, right, right 2; up 2, up, down, down 2; up left, up right, down left, down right */
    ptrdiff_t at[SMOOTH_NEIGHBOURS];
};

KERNEL_FN float smooth_weight_at(const struct smooth_plane *p, int y, int x, int edge)
{
    return y < 0 || x < 0 ? 0.0f : p->edge[((size_t)y * (size_t)p->w + (size_t)x) * SMOOTH_EDGES + (size_t)edge];
}

KERNEL_FN ptrdiff_t smooth_neighbour(const struct smooth_plane *p, int y, int x, int dy, int dx)
{
    if (y + dy < 0 || y + dy >= p->h || x + dx < 0 || x + dx >= p->w)
        return 0;
    return ((ptrdiff_t)dy * p->w + dx) * p->stride;
}

KERNEL_FN void smooth_readers(const struct smooth_plane *p, int y, int x, struct smooth_readers *ret)
{
    ret->w[0] = smooth_weight_at(p, y, x - 1, 0);
    ret->w[1] = smooth_weight_at(p, y, x, 0);
    ret->w[2] = smooth_weight_at(p, y - 1, x, 1);
    ret->w[3] = smooth_weight_at(p, y, x, 1);
    for (int i = 0; i < 3; i++) {
        ret->w[4 + i] = smooth_weight_at(p, y, x - 2 + i, 2);
        ret->w[11 + i] = smooth_weight_at(p, y - 2 + i, x, 4);
    }
    for (int i = 0; i < 4; i++) {
        ret->w[7 + i] = smooth_weight_at(p, y - 1 + i / 2, x - 1 + i % 2, 3);
        ret->at[i] = smooth_neighbour(p, y, x, 0, i < 2 ? i - 2 : i - 1);
        ret->at[4 + i] = smooth_neighbour(p, y, x, i < 2 ? i - 2 : i - 1, 0);
        ret->at[8 + i] = smooth_neighbour(p, y, x, i / 2 ? 1 : -1, i % 2 ? 1 : -1);
    }
}

/* Gradient of one number: the sum over the differences that read it, in a fixed order. */
KERNEL_FN float smooth_grad(const float *f, const struct smooth_readers *r)
{
    const float *w = r->w, c = *f;
    float left = f[r->at[1]], right = f[r->at[2]], up = f[r->at[5]], down = f[r->at[6]];
    float to_left = c - left, to_right = right - c, to_up = c - up, to_down = down - c, sum;

    sum = smooth_sign(to_left, w[0]) - smooth_sign(to_right, w[1]);
    sum += smooth_sign(to_up, w[2]) - smooth_sign(to_down, w[3]);
    sum += smooth_sign(to_left - (left - f[r->at[0]]), w[4]) - 2.0f * smooth_sign(to_right - to_left, w[5]) +
           smooth_sign((f[r->at[3]] - right) - to_right, w[6]);
    sum += smooth_sign(to_left - (up - f[r->at[8]]), w[7]) - smooth_sign(to_right - (f[r->at[9]] - up), w[8]) -
           smooth_sign((down - f[r->at[10]]) - to_left, w[9]) + smooth_sign((f[r->at[11]] - down) - to_right, w[10]);
    return sum + (smooth_sign(to_up - (up - f[r->at[4]]), w[11]) - 2.0f * smooth_sign(to_down - to_up, w[12]) +
                  smooth_sign((f[r->at[7]] - down) - to_down, w[13]));
}

/* ---- over the mean ---- */

static const double SMOOTH_GUARD = 1e-7; /* added to a mean */

/* The loss of an image; pixels: how many numbers it has. */
KERNEL_FN double smooth_image(const struct smoothness *s, const double sums[SMOOTH_SUMS], double pixels)
{
    return s->normalise ? sums[0] / (sums[1] / pixels + SMOOTH_GUARD) : sums[0];
}

/* The gradient of one number after normalisation. The loss is homogeneous of degree one, so sums[0] is also the sum of
 * gradient times number. */
KERNEL_FN float smooth_normalised(const struct smoothness *s, float grad, const double sums[SMOOTH_SUMS], double pixels)
{
    double mean = sums[1] / pixels + SMOOTH_GUARD;

    return s->normalise ? (float)((double)grad / mean - sums[0] / (pixels * mean * mean)) : grad;
}
