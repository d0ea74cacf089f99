/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/warp.h - the place of a pixel of the target in a source, the
 * value there, and the way back. Specs featdepth section 2.4: q = K T (z K^-1 (x, y, 1), 1), position (q0, q1) / (q2 +
 * eps). With M = K R K^-1 and t' = K t that is q = z M (x, y, 1) + t': both are made in double, once an image. */
#pragma once
#include "worker/kernels/act.h"
#include "worker/ops/warp.h"

#define WARP_EPS 1e-7f

enum {
    /* sums over channels, and over pixels of a piece: number i goes to lane i mod 16, lanes are added in pairs */
    WARP_LANES = 16,
    WARP_PIECE = 256, /* pixels of a row that form one partial sum */
    WARP_SUMS = 12,   /* S [3][3]: dq times depth times (x, y, 1); s [3]: dq */
};

/* ---- an image ---- */

/* Constants that follow from the shapes. */
struct warp_lens {
    float disp_scale, disp_shift;             /* 1 / depth = disp_scale * disp + disp_shift */
    float scale_x, shift_x, scale_y, shift_y; /* from positions to numbers of pixels */
    float last_x, last_y;                     /* number of the last column, row */
    int most_x, most_y;                       /* the last column, row that has a neighbour */
    int right, below;                         /* 1; 0: the source is one pixel wide, high */
};

/* An image of any shard. */
struct warp_image {
    struct warp_lens lens;
    const float *source, *disp, *pose, *camera, *dy;
    float camera_scale;
    float *y, *dsource, *ddisp, *dpose;
    int h, w, source_h, source_w, c;
    int source_stride, disp_stride, y_stride; /* y or dy; dsource or source */
    int ddisp_stride;
};

/* M and t' of specs featdepth section 2.4. */
struct warp_view {
    float m[3][3], t[3];
};

static inline struct warp_lens warp_lens(const struct warp *w, int source_h, int source_w)
{
    struct warp_lens l;

    l.disp_shift = 1.0f / w->max_depth;
    l.disp_scale = 1.0f / w->min_depth - l.disp_shift;
    l.last_x = (float)(source_w - 1);
    l.last_y = (float)(source_h - 1);
    l.scale_x = w->align_corners || source_w < 2 ? 1.0f : (float)source_w / l.last_x;
    l.scale_y = w->align_corners || source_h < 2 ? 1.0f : (float)source_h / l.last_y;
    l.shift_x = l.shift_y = w->align_corners ? 0.0f : -0.5f;
    l.most_x = source_w < 2 ? 0 : source_w - 2;
    l.most_y = source_h < 2 ? 0 : source_h - 2;
    l.right = source_w > 1;
    l.below = source_h > 1;
    return l;
}

/* Image i of shard v; dsource, ddisp and dpose stay NULL. y: y, or dy. */
static inline struct warp_image warp_image(const struct warp *w, const struct warp_in *in, const struct tensor *y, int v, int i)
{
    const struct tensor *source = &in->source[v], *disp = &in->disp[v];
    size_t pixels = (size_t)disp->h * (size_t)disp->w;
    struct warp_image r;

    memset(&r, 0, sizeof r);
    r.lens = warp_lens(w, source->h, source->w);
    r.h = disp->h;
    r.w = disp->w;
    r.c = source->c;
    r.source_h = source->h;
    r.source_w = source->w;
    r.source_stride = source->stride;
    r.disp_stride = disp->stride;
    r.y_stride = y[v].stride;
    r.source = (const float *)source->data + (size_t)i * (size_t)source->h * (size_t)source->w * (size_t)source->stride;
    r.disp = (const float *)disp->data + (size_t)i * pixels * (size_t)disp->stride;
    r.pose = (const float *)in->pose[v].data + (size_t)i * (size_t)in->pose[v].stride;
    r.camera = in->camera[v] + (size_t)i * CAMERA_NUMBERS;
    r.camera_scale = w->camera_scale;
    r.y = (float *)y[v].data + (size_t)i * pixels * (size_t)y[v].stride;
    r.dy = r.y;
    return r;
}

static inline int warp_images(const struct tensor *t, int nshards)
{
    int n = 0;

    for (int v = 0; v < nshards; v++)
        n += t[v].n;
    return n;
}

/* fx, fy, cx, cy in pixels of the map at hand. */
KERNEL_FN void warp_camera(const float *camera, float scale, double ret[CAMERA_NUMBERS])
{
    for (int i = 0; i < CAMERA_NUMBERS; i++)
        ret[i] = (double)camera[i] * (double)scale;
}

KERNEL_FN struct warp_view warp_view(const float *pose, const float *camera, float scale)
{
    double k4[CAMERA_NUMBERS], fx, fy, cx, cy;
    struct warp_view v;

    warp_camera(camera, scale, k4);
    fx = k4[0], fy = k4[1], cx = k4[2], cy = k4[3];
    for (int i = 0; i < 3; i++) {
        double f = i == 0 ? fx : i == 1 ? fy : 0.0, c = i == 0 ? cx : i == 1 ? cy : 1.0, k[4];

        for (int j = 0; j < 4; j++) /* K T */
            k[j] = (i < 2 ? f * (double)pose[4 * i + j] : 0.0) + c * (double)pose[8 + j];
        v.m[i][0] = (float)(k[0] / fx);
        v.m[i][1] = (float)(k[1] / fy);
        v.m[i][2] = (float)(k[2] - k[0] * cx / fx - k[1] * cy / fy);
        v.t[i] = (float)k[3];
    }
    return v;
}

/* ---- a pixel ---- */

struct warp_point {
    float z, r;   /* depth; 1 / (q2 + eps) */
    float px, py; /* the position as it is projected */
    float fx, fy; /* part of the way from cell (x0, y0) to the next ones */
    int x0, y0;
    int in_x, in_y; /* inside of the borders: there is a gradient */
};

/* Row i of M (x, y, 1). */
KERNEL_FN float warp_ray(const struct warp_view *v, int i, float x, float y)
{
    return fmaf(v->m[i][0], x, fmaf(v->m[i][1], y, v->m[i][2]));
}

KERNEL_FN struct warp_point warp_point(const struct warp_lens *l, const struct warp_view *v, float x, float y, float disp)
{
    struct warp_point p;
    float u, w;

    p.z = 1.0f / fmaf(l->disp_scale, disp, l->disp_shift);
    p.r = 1.0f / (fmaf(p.z, warp_ray(v, 2, x, y), v->t[2]) + WARP_EPS);
    p.px = fmaf(p.z, warp_ray(v, 0, x, y), v->t[0]) * p.r;
    p.py = fmaf(p.z, warp_ray(v, 1, x, y), v->t[1]) * p.r;
    u = fmaf(p.px, l->scale_x, l->shift_x);
    w = fmaf(p.py, l->scale_y, l->shift_y);
    p.in_x = (u > 0.0f) & (u < l->last_x);
    p.in_y = (w > 0.0f) & (w < l->last_y);
    u = u > 0.0f ? u : 0.0f; /* NaN too */
    w = w > 0.0f ? w : 0.0f;
    u = u < l->last_x ? u : l->last_x;
    w = w < l->last_y ? w : l->last_y;
    p.x0 = (int)u;
    p.y0 = (int)w;
    p.x0 = p.x0 < l->most_x ? p.x0 : l->most_x;
    p.y0 = p.y0 < l->most_y ? p.y0 : l->most_y;
    p.fx = u - (float)p.x0;
    p.fy = w - (float)p.y0;
    return p;
}

/* Weights of the four cells, row by row. */
struct warp_weights {
    float w[4];
};

KERNEL_FN struct warp_weights warp_weights(float fx, float fy)
{
    struct warp_weights r;

    r.w[0] = (1.0f - fx) * (1.0f - fy);
    r.w[1] = fx * (1.0f - fy);
    r.w[2] = (1.0f - fx) * fy;
    r.w[3] = fx * fy;
    return r;
}

KERNEL_FN float warp_value(struct warp_weights w, float a, float b, float c, float d)
{
    return fmaf(w.w[3], d, fmaf(w.w[2], c, fmaf(w.w[1], b, w.w[0] * a)));
}

/* How a channel's value changes along x; along y with b and c exchanged and fx for fy. */
KERNEL_FN float warp_slope(float fy, float a, float b, float c, float d)
{
    return fmaf(fy, (d - c) - (b - a), b - a);
}

KERNEL_FN float warp_sum(float lane[WARP_LANES])
{
    for (int half = WARP_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[2 * i] + lane[2 * i + 1];
    return lane[0];
}

/* The gradients that follow from the gradient of a position. Terms without a gradient are 0 even if the position is
 * NaN. */
struct warp_back {
    float q[3]; /* dq */
    float z;    /* depth, or 0 */
    float disp; /* the gradient of the disparity */
};

/* du, dv: along the source's columns and rows. p: x0, y0, fx and fy are not read. */
KERNEL_FN struct warp_back warp_back(const struct warp_lens *l, const struct warp_view *v, float x, float y, const struct warp_point *p,
                                     float du, float dv)
{
    float gx = p->in_x ? du * l->scale_x : 0.0f, gy = p->in_y ? dv * l->scale_y : 0.0f;
    float px = p->in_x ? p->px : 0.0f, py = p->in_y ? p->py : 0.0f;
    float r = p->in_x | p->in_y ? p->r : 0.0f, dz;
    struct warp_back b;

    b.z = p->in_x | p->in_y ? p->z : 0.0f;
    b.q[0] = gx * r;
    b.q[1] = gy * r;
    b.q[2] = -fmaf(gx, px, gy * py) * r;
    dz = fmaf(b.q[0], warp_ray(v, 0, x, y), fmaf(b.q[1], warp_ray(v, 1, x, y), b.q[2] * warp_ray(v, 2, x, y)));
    b.disp = -(dz * l->disp_scale) * (b.z * b.z);
    return b;
}

/* ---- the pose's gradient ---- */

/* A lane's share of a piece: S without its column of y, which is the same in all of a row. */
struct warp_lane {
    float q[3], e[3], ex[3];
};

KERNEL_FN void warp_lane_add(struct warp_lane *a, const struct warp_back *b, float x)
{
    for (int i = 0; i < 3; i++) {
        float e = b->q[i] * b->z;

        a->q[i] += b->q[i];
        a->e[i] += e;
        a->ex[i] = fmaf(e, x, a->ex[i]);
    }
}

/* A piece's sums; q, e, ex: the sums of its lanes, added in pairs. */
KERNEL_FN void warp_piece_sums(double ret[WARP_SUMS], const float q[3], const float e[3], const float ex[3], int y)
{
    for (int i = 0; i < 3; i++) {
        ret[3 * i] = (double)ex[i];
        ret[3 * i + 1] = (double)e[i] * (double)y;
        ret[3 * i + 2] = (double)e[i];
        ret[9 + i] = (double)q[i];
    }
}

KERNEL_FN int warp_pieces(int w)
{
    return (w + WARP_PIECE - 1) / WARP_PIECE;
}

/* dT = K^T [S K^-T | s]. */
KERNEL_FN void warp_pose_grad(float dpose[POSE_OUT], float beta, const double sum[WARP_SUMS], const float *camera, float scale)
{
    double k4[CAMERA_NUMBERS], fx, fy, cx, cy, p[3][4];

    warp_camera(camera, scale, k4);
    fx = k4[0], fy = k4[1], cx = k4[2], cy = k4[3];
    for (int i = 0; i < 3; i++) {
        p[i][0] = (sum[3 * i] - cx * sum[3 * i + 2]) / fx;
        p[i][1] = (sum[3 * i + 1] - cy * sum[3 * i + 2]) / fy;
        p[i][2] = sum[3 * i + 2];
        p[i][3] = sum[9 + i];
    }
    for (int j = 0; j < 4; j++) {
        dpose[j] = act_store(beta, &dpose[j], (float)(fx * p[0][j]));
        dpose[4 + j] = act_store(beta, &dpose[4 + j], (float)(fy * p[1][j]));
        dpose[8 + j] = act_store(beta, &dpose[8 + j], (float)(cx * p[0][j] + cy * p[1][j] + p[2][j]));
    }
}
