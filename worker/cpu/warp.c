/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/warp.c - pictures as seen by another camera. A piece of a row is
 * placed first, in loops over its pixels. Then each pixel is sampled along channels: a pixel's neighbours lie together,
 * and a load of four numbers is cheaper than a gather of four. */
#include "worker/cpu/warp.h"

#include <errno.h>

#include "worker/core/carve.h"

/* ---- the images of a call ---- */

void *warp_start(struct warp_args *a, struct device *dev, const struct warp *w, const struct warp_in *in, const struct tensor *y,
                 int nshards, size_t more, struct err *err)
{
    size_t n = (size_t)warp_images(y, nshards), at = 0;
    struct carve c = { NULL, 0 };
    void *rest = NULL;

    for (int pass = 0; pass < 2; pass++) {
        a->image = carve(&c, n * sizeof *a->image);
        a->view = carve(&c, n * sizeof *a->view);
        a->first = carve(&c, (size_t)nshards * sizeof *a->first);
        a->first_sum = carve(&c, n * sizeof *a->first_sum);
        rest = carve(&c, more);
        if (pass == 0) {
            c.base = cpu_scratch(dev, c.used, err);
            c.used = 0;
        }
        if (!c.base)
            return NULL;
    }
    a->disp = in->disp;
    for (int v = 0; v < nshards; v++) {
        a->first[v] = (int)at;
        for (int i = 0; i < y[v].n; i++, at++) {
            a->image[at] = warp_image(w, in, y, v, i);
            a->view[at] = warp_view(a->image[at].pose, a->image[at].camera, w->camera_scale);
        }
    }
    return rest;
}

size_t warp_rows(const void *arg, int v)
{
    const struct tensor *disp = &((const struct warp_args *)arg)->disp[v];

    return (size_t)disp->n * (size_t)disp->h;
}

/* ---- pixels of a piece ---- */

void warp_place(struct warp_piece *restrict p, const struct warp_image *m, const struct warp_view *view, int y, int from, int n)
{
    const float *disp = m->disp + ((size_t)y * (size_t)m->w + (size_t)from) * (size_t)m->disp_stride;
    const struct warp_view v = *view;
    const struct warp_lens l = m->lens;
    const int stride = m->source_stride, width = m->source_w;

    for (int i = 0; i < n; i++)
        p->disp[i] = disp[(ptrdiff_t)i * m->disp_stride];
    CPU_LANES
    for (int i = 0; i < n; i++) {
        struct warp_point at = warp_point(&l, &v, (float)(from + i), (float)y, p->disp[i]);

        p->z[i] = at.z;
        p->r[i] = at.r;
        p->px[i] = at.px;
        p->py[i] = at.py;
        p->fx[i] = at.fx;
        p->fy[i] = at.fy;
        p->x0[i] = at.x0;
        p->y0[i] = at.y0;
        p->in_x[i] = at.in_x;
        p->in_y[i] = at.in_y;
        p->cell[i] = (at.y0 * width + at.x0) * stride;
    }
}

static void weigh(struct warp_piece *restrict p, int n)
{
    CPU_LANES
    for (int i = 0; i < n; i++)
        p->w[i] = warp_weights(p->fx[i], p->fy[i]);
}

/* ---- channels ---- */

/* Must go in order: a store of four numbers also writes into the next pixel. */
SIMD_FN void sample_quads(const struct warp_piece *p, const struct warp_image *m, float *y, int n, int c)
{
    size_t limit = reach(m->source_h, m->source_w, m->source_stride, c), right = (size_t)(m->lens.right * m->source_stride);
    size_t below = (size_t)m->lens.below * (size_t)m->source_w * (size_t)m->source_stride;

    for (int i = 0; i < n; i++, y += m->y_stride) {
        struct corners k = corners(m->source, (size_t)p->cell[i], right, below, limit, c);
        quad v = quad_set1(p->w[i].w[0]) * k.v[0];

        v = quad_fma(quad_set1(p->w[i].w[1]), k.v[1], v);
        v = quad_fma(quad_set1(p->w[i].w[2]), k.v[2], v);
        v = quad_fma(quad_set1(p->w[i].w[3]), k.v[3], v);
        if (m->y_stride == c && i * c + QUAD <= n * c)
            memcpy(y, &v, sizeof v);
        else
            memcpy(y, &v, (size_t)c * sizeof *y);
    }
}

SIMD_FN void sample_vec(float *y, const float *at, size_t right, size_t below, struct warp_weights w, int lanes)
{
    vec v = vmul(vset1(w.w[0]), vload_n(at, lanes));

    v = vfma(vset1(w.w[1]), vload_n(at + right, lanes), v);
    v = vfma(vset1(w.w[2]), vload_n(at + below, lanes), v);
    v = vfma(vset1(w.w[3]), vload_n(at + right + below, lanes), v);
    vstore_n(y, v, lanes);
}

static void sample_channels(const struct warp_piece *p, const struct warp_image *m, float *y, int n)
{
    size_t right = (size_t)(m->lens.right * m->source_stride);
    size_t below = (size_t)m->lens.below * (size_t)m->source_w * (size_t)m->source_stride;

    for (int i = 0; i < n; i++, y += m->y_stride) {
        const float *at = m->source + p->cell[i];
        int k = 0;

        for (; k + VW <= m->c; k += VW) {
            vec v = vmul(vset1(p->w[i].w[0]), vload(at + k));

            v = vfma(vset1(p->w[i].w[1]), vload(at + k + right), v);
            v = vfma(vset1(p->w[i].w[2]), vload(at + k + below), v);
            v = vfma(vset1(p->w[i].w[3]), vload(at + k + right + below), v);
            vstore(y + k, v);
        }
        if (k < m->c)
            sample_vec(y + k, at + k, right, below, p->w[i], m->c - k);
    }
}

/* ---- all pixels ---- */

static void sample(const struct warp_piece *p, const struct warp_image *m, float *y, int n)
{
    switch (m->c) {
    case 1:
        sample_quads(p, m, y, n, 1);
        break;
    case 2:
        sample_quads(p, m, y, n, 2);
        break;
    case 3:
        sample_quads(p, m, y, n, 3);
        break;
    case 4:
        sample_quads(p, m, y, n, 4);
        break;
    default:
        sample_channels(p, m, y, n);
    }
}

static void fwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct warp_args *a = arg;
    struct warp_piece p;

    for (size_t r = from; r < to; r++) {
        size_t image = (size_t)a->first[v] + r / (size_t)a->disp[v].h;
        const struct warp_image *m = &a->image[image];
        int y = (int)(r % (size_t)m->h);

        for (int x = 0; x < m->w; x += WARP_PIECE) {
            int n = m->w - x < WARP_PIECE ? m->w - x : WARP_PIECE;

            warp_place(&p, m, &a->view[image], y, x, n);
            weigh(&p, n);
            sample(&p, m, m->y + ((size_t)y * (size_t)m->w + (size_t)x) * (size_t)m->y_stride, n);
        }
    }
}

int cpu_warp_fwd(struct device *dev, const struct warp *w, struct tensor *y, const struct warp_in *in, int nshards, struct err *err)
{
    struct warp_args a = { 0 };

    if (!warp_start(&a, dev, w, in, y, nshards, 0, err))
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, warp_rows, fwd_part, &a });
    return 0;
}
