/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/warp_back.c - gradients of warped pictures for disparities and
 * poses: first the slopes of a piece's pixels along channels, then the chain rule back from these, in loops over its
 * pixels. */
#include "worker/cpu/warp.h"

#include <errno.h>

#include "worker/core/tree.h"

/* ---- slopes ---- */

/* Sums over channels of a gradient times the slopes, in the order of warp_sum(). */
SIMD_FN float quad_sum(quad q)
{
    return ((q[0] + q[1]) + (q[2] + q[3])) + 0.0f;
}

SIMD_FN void slope_quads(float *restrict du, float *restrict dv, const struct warp_piece *p, const struct warp_image *m, const float *dy,
                         int n, int c)
{
    size_t limit = reach(m->source_h, m->source_w, m->source_stride, c), right = (size_t)(m->lens.right * m->source_stride);
    size_t below = (size_t)m->lens.below * (size_t)m->source_w * (size_t)m->source_stride;
    const quad_mask place = { 0, 1, 2, 3 }, limits = { c, c, c, c }, lanes = place < limits;

    for (int i = 0; i < n; i++, dy += m->y_stride) {
        struct corners k = corners(m->source, (size_t)p->cell[i], right, below, limit, c);
        quad g = i + QUAD <= n ? quad_load(dy) : quad_load_n(dy, c), none = { 0 };
        quad ab = k.v[1] - k.v[0], cd = k.v[3] - k.v[2], ac = k.v[2] - k.v[0], bd = k.v[3] - k.v[1];
        quad x = quad_fma(g, quad_fma(quad_set1(p->fy[i]), cd - ab, ab), none);
        quad y = quad_fma(g, quad_fma(quad_set1(p->fx[i]), bd - ac, ac), none);

        du[i] = quad_sum((quad)((quad_mask)x & lanes));
        dv[i] = quad_sum((quad)((quad_mask)y & lanes));
    }
}

enum { PARTS = WARP_LANES / VW }; /* vectors that hold the lanes of a sum */

SIMD_FN void slope_vec(vec *x, vec *y, const float *at, size_t right, size_t below, const float *dy, vec fx, vec fy, int lanes)
{
    vec a = lanes == VW ? vload(at) : vload_n(at, lanes), b = lanes == VW ? vload(at + right) : vload_n(at + right, lanes);
    vec c = lanes == VW ? vload(at + below) : vload_n(at + below, lanes);
    vec d = lanes == VW ? vload(at + right + below) : vload_n(at + right + below, lanes);
    vec g = lanes == VW ? vload(dy) : vload_n(dy, lanes), ab = vsub(b, a), ac = vsub(c, a);

    *x = vfma(g, vfma(fy, vsub(vsub(d, c), ab), ab), *x);
    *y = vfma(g, vfma(fx, vsub(vsub(d, b), ac), ac), *y);
}

static void slope_channels(float *restrict du, float *restrict dv, const struct warp_piece *p, const struct warp_image *m, const float *dy,
                           int n)
{
    size_t right = (size_t)(m->lens.right * m->source_stride);
    size_t below = (size_t)m->lens.below * (size_t)m->source_w * (size_t)m->source_stride;

    for (int i = 0; i < n; i++, dy += m->y_stride) {
        vec x[PARTS], y[PARTS], fx = vset1(p->fx[i]), fy = vset1(p->fy[i]);
        const float *at = m->source + p->cell[i];
        float lane[WARP_LANES];

        for (int j = 0; j < PARTS; j++)
            x[j] = y[j] = vset1(0.0f);
        for (int k = 0; k < m->c; k += WARP_LANES)
            for (int j = 0; j < PARTS && k + j * VW < m->c; j++) {
                int first = k + j * VW, lanes = vlanes(m->c, first);

                if (lanes == VW)
                    slope_vec(&x[j], &y[j], at + first, right, below, dy + first, fx, fy, VW);
                else
                    slope_vec(&x[j], &y[j], at + first, right, below, dy + first, fx, fy, lanes);
            }
        for (int j = 0; j < PARTS; j++)
            vstore(lane + j * VW, x[j]);
        du[i] = warp_sum(lane);
        for (int j = 0; j < PARTS; j++)
            vstore(lane + j * VW, y[j]);
        dv[i] = warp_sum(lane);
    }
}

static void slopes(float *restrict du, float *restrict dv, const struct warp_piece *p, const struct warp_image *m, const float *dy, int n)
{
    switch (m->c) {
    case 3:
        slope_quads(du, dv, p, m, dy, n, 3);
        break;
    case 4:
        slope_quads(du, dv, p, m, dy, n, 4);
        break;
    default:
        slope_channels(du, dv, p, m, dy, n);
    }
}

/* Fills lanes without a pixel with 0. */
static void fill_up(struct warp_piece *p, float *du, float *dv, int n)
{
    for (int i = n; i % WARP_LANES != 0; i++) {
        p->in_x[i] = p->in_y[i] = 0;
        p->z[i] = p->r[i] = p->px[i] = p->py[i] = du[i] = dv[i] = 0.0f;
    }
}

/* Adds the piece to the sums and computes the gradient of its disparities. */
static void settle(double sum[WARP_SUMS], float *restrict ddisp, const struct warp_piece *restrict p, const struct warp_image *m,
                   const struct warp_view *view, const float *restrict du, const float *restrict dv, int y, int from, int n)
{
    float q[3][WARP_LANES] = { { 0 } }, e[3][WARP_LANES] = { { 0 } }, ex[3][WARP_LANES] = { { 0 } };
    const struct warp_view v = *view;
    const struct warp_lens l = m->lens;
    float all[3][3];

    for (int i = 0; i < n; i += WARP_LANES) {
        CPU_LANES
        for (int j = 0; j < WARP_LANES; j++) {
            struct warp_point at = {
                .z = p->z[i + j], .r = p->r[i + j], .px = p->px[i + j], .py = p->py[i + j], .in_x = p->in_x[i + j], .in_y = p->in_y[i + j]
            };
            float x = (float)(from + i + j);
            struct warp_back b = warp_back(&l, &v, x, (float)y, &at, du[i + j], dv[i + j]);
            struct warp_lane lane = { { q[0][j], q[1][j], q[2][j] }, { e[0][j], e[1][j], e[2][j] }, { ex[0][j], ex[1][j], ex[2][j] } };

            warp_lane_add(&lane, &b, x);
            ddisp[i + j] = b.disp;
            for (int k = 0; k < 3; k++) {
                q[k][j] = lane.q[k];
                e[k][j] = lane.e[k];
                ex[k][j] = lane.ex[k];
            }
        }
    }
    for (int k = 0; k < 3; k++) {
        all[0][k] = warp_sum(q[k]);
        all[1][k] = warp_sum(e[k]);
        all[2][k] = warp_sum(ex[k]);
    }
    warp_piece_sums(sum, all[0], all[1], all[2], y);
}

static void bwd_piece(const struct warp_args *a, size_t image, int y, int x, int n)
{
    const struct warp_image *m = &a->image[image];
    size_t first = (size_t)y * (size_t)m->w + (size_t)x;
    float du[WARP_PIECE], dv[WARP_PIECE], ddisp[WARP_PIECE];
    double unused[WARP_SUMS], *sum = unused;
    struct warp_piece p;

    if (a->sums)
        sum = a->sums + (a->first_sum[image] + (size_t)y * (size_t)warp_pieces(m->w) + (size_t)(x / WARP_PIECE)) * WARP_SUMS;
    warp_place(&p, m, &a->view[image], y, x, n);
    slopes(du, dv, &p, m, m->dy + first * (size_t)m->y_stride, n);
    fill_up(&p, du, dv, n);
    settle(sum, ddisp, &p, m, &a->view[image], du, dv, y, x, n);
    for (int i = 0; i < n && m->ddisp; i++) {
        float *to = m->ddisp + (first + (size_t)i) * (size_t)m->ddisp_stride;

        *to = act_store(a->beta_disp, to, ddisp[i]);
    }
}

static void bwd_part(const void *arg, int v, size_t from, size_t to)
{
    const struct warp_args *a = arg;

    for (size_t r = from; r < to; r++) {
        size_t image = (size_t)a->first[v] + r / (size_t)a->disp[v].h;
        const struct warp_image *m = &a->image[image];

        for (int x = 0; x < m->w; x += WARP_PIECE)
            bwd_piece(a, image, (int)(r % (size_t)m->h), x, m->w - x < WARP_PIECE ? m->w - x : WARP_PIECE);
    }
}

static void finish_pose(void *arg, size_t from, size_t to)
{
    const struct warp_args *a = arg;

    for (size_t i = from; i < to; i++) {
        const struct warp_image *m = &a->image[i];
        double sum[WARP_SUMS];

        for (int k = 0; k < WARP_SUMS; k++)
            sum[k] = tree_sum(a->sums + a->first_sum[i] * WARP_SUMS + k, WARP_SUMS, m->h * warp_pieces(m->w));
        warp_pose_grad(m->dpose, a->beta_pose, sum, m->camera, m->camera_scale);
    }
}

int cpu_warp_bwd(struct device *dev, const struct warp *w, struct tensor *ddisp, float beta_disp, struct tensor *dpose, float beta_pose,
                 const struct tensor *dy, const struct warp_in *in, int nshards, struct err *err)
{
    struct warp_args a = { .beta_disp = beta_disp, .beta_pose = beta_pose };
    size_t pieces = 0, images = (size_t)warp_images(dy, nshards), at = 0;
    double *sums;

    for (int v = 0; v < nshards; v++)
        pieces += warp_rows(&(struct warp_args){ .disp = in->disp }, v) * (size_t)warp_pieces(in->disp[v].w);
    sums = warp_start(&a, dev, w, in, dy, nshards, pieces * WARP_SUMS * sizeof *sums, err);
    if (!sums)
        return -ENOMEM;
    a.sums = dpose ? sums : NULL;
    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < dy[v].n; i++) {
            struct warp_image *m = &a.image[a.first[v] + i];

            a.first_sum[a.first[v] + i] = at;
            at += (size_t)m->h * (size_t)warp_pieces(m->w);
            if (dpose)
                m->dpose = (float *)dpose[v].data + (size_t)i * (size_t)dpose[v].stride;
            if (ddisp) {
                m->ddisp_stride = ddisp[v].stride;
                m->ddisp = (float *)ddisp[v].data + (size_t)i * (size_t)m->h * (size_t)m->w * (size_t)m->ddisp_stride;
            }
        }
    cpu_over_shards(dev, &(struct shard_work){ nshards, warp_rows, bwd_part, &a });
    if (dpose)
        threads_run(cpu_threads(dev), images, finish_pose, &a);
    return 0;
}
