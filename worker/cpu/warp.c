/* worker/cpu/warp.c - pictures as another camera sees them. A piece of a row is placed first, in loops over its pixels; then its pixels are
 * sampled one after the other, along channels: a pixel's neighbours lie together, and a load of four numbers is cheaper than a gather of four.
 * The gradient of a source is made in bands of its rows, which find by the rows that each row of the target falls in what is theirs. */
#include "worker/kernels/warp.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/core/carve.h"
#include "worker/core/simd.h"
#include "worker/core/tree.h"
#include "worker/cpu/rows.h"

enum {
    QUAD = 4, /* channels that are one short vector; more are done in vectors of the ISA */
    BAND = 8, /* rows of a source */
};

/* ---- the images of a call ---- */

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
static void *start(struct warp_args *a, struct device *dev, const struct warp *w, const struct warp_in *in, const struct tensor *y,
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

static size_t row_units(const void *arg, int v)
{
    const struct tensor *disp = &((const struct warp_args *)arg)->disp[v];

    return (size_t)disp->n * (size_t)disp->h;
}

/* ---- pixels of a piece ---- */

struct piece {
    float z[WARP_PIECE], r[WARP_PIECE], px[WARP_PIECE], py[WARP_PIECE], fx[WARP_PIECE], fy[WARP_PIECE], disp[WARP_PIECE];
    int32_t x0[WARP_PIECE], y0[WARP_PIECE], in_x[WARP_PIECE], in_y[WARP_PIECE], cell[WARP_PIECE];
    struct warp_weights w[WARP_PIECE];
};

static void place(struct piece *restrict p, const struct warp_image *m, const struct warp_view *view, int y, int from, int n)
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

static void weigh(struct piece *restrict p, int n)
{
    CPU_LANES
    for (int i = 0; i < n; i++)
        p->w[i] = warp_weights(p->fx[i], p->fy[i]);
}

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

/* Numbers of an image that a load of four may touch: what stands behind a pixel's channels is the next pixel's, or, behind the last one,
 * anybody's. */
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

/* In order, as a store of four numbers writes into the next pixel, too. */
SIMD_FN void sample_quads(const struct piece *p, const struct warp_image *m, float *y, int n, int c)
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

/* The sums over channels of a gradient times the slopes, as warp_sum() adds them. */
SIMD_FN float quad_sum(quad q)
{
    return ((q[0] + q[1]) + (q[2] + q[3])) + 0.0f;
}

SIMD_FN void slope_quads(float *restrict du, float *restrict dv, const struct piece *p, const struct warp_image *m, const float *dy, int n,
                         int c)
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

/* ---- more channels ---- */

SIMD_FN void sample_vec(float *y, const float *at, size_t right, size_t below, struct warp_weights w, int lanes)
{
    vec v = vmul(vset1(w.w[0]), vload_n(at, lanes));

    v = vfma(vset1(w.w[1]), vload_n(at + right, lanes), v);
    v = vfma(vset1(w.w[2]), vload_n(at + below, lanes), v);
    v = vfma(vset1(w.w[3]), vload_n(at + right + below, lanes), v);
    vstore_n(y, v, lanes);
}

static void sample_channels(const struct piece *p, const struct warp_image *m, float *y, int n)
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

enum { PARTS = WARP_LANES / VW }; /* vectors of the lanes of a sum */

SIMD_FN void slope_vec(vec *x, vec *y, const float *at, size_t right, size_t below, const float *dy, vec fx, vec fy, int lanes)
{
    vec a = lanes == VW ? vload(at) : vload_n(at, lanes), b = lanes == VW ? vload(at + right) : vload_n(at + right, lanes);
    vec c = lanes == VW ? vload(at + below) : vload_n(at + below, lanes);
    vec d = lanes == VW ? vload(at + right + below) : vload_n(at + right + below, lanes);
    vec g = lanes == VW ? vload(dy) : vload_n(dy, lanes), ab = vsub(b, a), ac = vsub(c, a);

    *x = vfma(g, vfma(fy, vsub(vsub(d, c), ab), ab), *x);
    *y = vfma(g, vfma(fx, vsub(vsub(d, b), ac), ac), *y);
}

static void slope_channels(float *restrict du, float *restrict dv, const struct piece *p, const struct warp_image *m, const float *dy,
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

/* ---- forward ---- */

static void sample(const struct piece *p, const struct warp_image *m, float *y, int n)
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
    struct piece p;

    for (size_t r = from; r < to; r++) {
        size_t image = (size_t)a->first[v] + r / (size_t)a->disp[v].h;
        const struct warp_image *m = &a->image[image];
        int y = (int)(r % (size_t)m->h);

        for (int x = 0; x < m->w; x += WARP_PIECE) {
            int n = m->w - x < WARP_PIECE ? m->w - x : WARP_PIECE;

            place(&p, m, &a->view[image], y, x, n);
            weigh(&p, n);
            sample(&p, m, m->y + ((size_t)y * (size_t)m->w + (size_t)x) * (size_t)m->y_stride, n);
        }
    }
}

int cpu_warp_fwd(struct device *dev, const struct warp *w, struct tensor *y, const struct warp_in *in, int nshards, struct err *err)
{
    struct warp_args a = { 0 };

    if (!start(&a, dev, w, in, y, nshards, 0, err))
        return -ENOMEM;
    cpu_over_shards(dev, &(struct shard_work){ nshards, row_units, fwd_part, &a });
    return 0;
}

/* ---- backward: disparities and poses ---- */

static void slopes(float *restrict du, float *restrict dv, const struct piece *p, const struct warp_image *m, const float *dy, int n)
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

/* Lanes that no pixel has add 0. */
static void fill_up(struct piece *p, float *du, float *dv, int n)
{
    for (int i = n; i % WARP_LANES != 0; i++) {
        p->in_x[i] = p->in_y[i] = 0;
        p->z[i] = p->r[i] = p->px[i] = p->py[i] = du[i] = dv[i] = 0.0f;
    }
}

/* Sums of the piece, and the gradient of its disparities. */
static void settle(double sum[WARP_SUMS], float *restrict ddisp, const struct piece *restrict p, const struct warp_image *m,
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
    struct piece p;

    if (a->sums)
        sum = a->sums + (a->first_sum[image] + (size_t)y * (size_t)warp_pieces(m->w) + (size_t)(x / WARP_PIECE)) * WARP_SUMS;
    place(&p, m, &a->view[image], y, x, n);
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
        pieces += row_units(&(struct warp_args){ .disp = in->disp }, v) * (size_t)warp_pieces(in->disp[v].w);
    sums = start(&a, dev, w, in, dy, nshards, pieces * WARP_SUMS * sizeof *sums, err);
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
    cpu_over_shards(dev, &(struct shard_work){ nshards, row_units, bwd_part, &a });
    if (dpose)
        threads_run(cpu_threads(dev), images, finish_pose, &a);
    return 0;
}

/* ---- backward: the source ---- */

/* Where the pixels of all images fall. */
struct source_args {
    struct warp_args w;
    float beta;
    struct cell *cell;                            /* [pixels] */
    struct rows_seen *seen;                       /* [rows] */
    size_t *first_pixel, *first_row, *first_unit; /* [images + 1] */
    size_t images;
};

struct cell {
    int32_t y, x;
    float fx, fy;
};

/* The rows of a source that a row of the target falls in. */
struct rows_seen {
    int32_t from, to;
};

static void place_row(const struct source_args *a, size_t image, int y)
{
    const struct warp_image *m = &a->w.image[image];
    struct cell *cell = a->cell + a->first_pixel[image] + (size_t)y * (size_t)m->w;
    struct rows_seen seen = { INT32_MAX, 0 };
    struct piece p;

    for (int x = 0; x < m->w; x += WARP_PIECE) {
        int n = m->w - x < WARP_PIECE ? m->w - x : WARP_PIECE;

        place(&p, m, &a->w.view[image], y, x, n);
        for (int i = 0; i < n; i++) {
            cell[x + i] = (struct cell){ p.y0[i], p.x0[i], p.fx[i], p.fy[i] };
            seen.from = p.y0[i] < seen.from ? p.y0[i] : seen.from;
            seen.to = p.y0[i] > seen.to ? p.y0[i] : seen.to;
        }
    }
    seen.to += m->lens.below + 1;
    a->seen[a->first_row[image] + (size_t)y] = seen;
}

static void place_part(const void *arg, int v, size_t from, size_t to)
{
    const struct source_args *a = arg;

    for (size_t r = from; r < to; r++)
        place_row(a, (size_t)a->w.first[v] + r / (size_t)a->w.disp[v].h, (int)(r % (size_t)a->w.disp[v].h));
}

static size_t place_units(const void *arg, int v)
{
    return row_units(&((const struct source_args *)arg)->w, v);
}

/* dst += w * g */
SIMD_FN void add_weighted(float *restrict dst, const float *restrict g, float w, int c)
{
    vec weight = vset1(w);
    int k = 0;

    for (; k + VW <= c; k += VW)
        vstore(dst + k, vfma(weight, vload(g + k), vload(dst + k)));
    if (k < c)
        vstore_n(dst + k, vfma(weight, vload_n(g + k, c - k), vload_n(dst + k, c - k)), c - k);
}

/* What a pixel gives those of its four cells that stand in rows [from, to). */
static void spread(const struct warp_image *m, const struct cell *at, const float *g, int from, int to)
{
    struct warp_weights w = warp_weights(at->fx, at->fy);

    for (int i = 0; i < 4; i++) {
        int y = at->y + i / 2 * m->lens.below, x = at->x + i % 2 * m->lens.right;

        if (y >= from && y < to)
            add_weighted(m->dsource + ((size_t)y * (size_t)m->source_w + (size_t)x) * (size_t)m->source_stride, g, w.w[i], m->c);
    }
}

static void begin_band(const struct warp_image *m, float beta, int from, int to)
{
    for (size_t i = (size_t)from * (size_t)m->source_w; i < (size_t)to * (size_t)m->source_w && beta != 1.0f; i++) {
        float *dst = m->dsource + i * (size_t)m->source_stride;

        for (int k = 0; k < m->c; k++)
            dst[k] = beta == 0.0f ? 0.0f : beta * dst[k];
    }
}

static void band_unit(void *arg, size_t unit, int thread)
{
    const struct source_args *a = arg;
    size_t image = 0;
    const struct warp_image *m;
    int from, to;

    (void)thread;
    while (unit >= a->first_unit[image + 1])
        image++;
    m = &a->w.image[image];
    from = (int)(unit - a->first_unit[image]) * BAND;
    to = from + BAND < m->source_h ? from + BAND : m->source_h;
    begin_band(m, a->beta, from, to);
    for (int y = 0; y < m->h; y++) {
        const struct rows_seen *seen = &a->seen[a->first_row[image] + (size_t)y];
        const struct cell *cell = a->cell + a->first_pixel[image] + (size_t)y * (size_t)m->w;
        const float *g = m->dy + (size_t)y * (size_t)m->w * (size_t)m->y_stride;

        if (seen->from >= to || seen->to <= from)
            continue;
        for (int x = 0; x < m->w; x++)
            if (cell[x].y < to && cell[x].y + m->lens.below >= from)
                spread(m, &cell[x], g + (size_t)x * (size_t)m->y_stride, from, to);
    }
}

static size_t bands(const struct warp_image *m)
{
    return (size_t)(m->source_h + BAND - 1) / BAND;
}

/* Where an image's pixels, rows and bands begin. */
static void number(struct source_args *a, struct tensor *dsource, int nshards)
{
    size_t pixels = 0, rows = 0, units = 0, at = 0;

    for (int v = 0; v < nshards; v++)
        for (int i = 0; i < dsource[v].n; i++, at++) {
            struct warp_image *m = &a->w.image[at];

            m->source_stride = dsource[v].stride;
            m->dsource = (float *)dsource[v].data + (size_t)i * (size_t)m->source_h * (size_t)m->source_w * (size_t)m->source_stride;
            a->first_pixel[at] = pixels;
            a->first_row[at] = rows;
            a->first_unit[at] = units;
            pixels += (size_t)m->h * (size_t)m->w;
            rows += (size_t)m->h;
            units += bands(m);
        }
    a->first_unit[at] = units;
}

int cpu_warp_bwd_source(struct device *dev, const struct warp *w, struct tensor *dsource, float beta, const struct tensor *dy,
                        const struct warp_in *in, int nshards, struct err *err)
{
    struct source_args a = { .beta = beta, .images = (size_t)warp_images(dy, nshards) };
    size_t pixels = 0, rows = 0, more;
    struct carve c = { NULL, 0 };

    for (int v = 0; v < nshards; v++) {
        pixels += tensor_pixels(&in->disp[v]);
        rows += (size_t)in->disp[v].n * (size_t)in->disp[v].h;
    }
    more = (pixels * sizeof *a.cell + rows * sizeof *a.seen + 3 * (a.images + 1) * sizeof(size_t)) + 5 * CARVE_ALIGN;
    c.base = start(&a.w, dev, w, in, dy, nshards, more, err);
    if (!c.base)
        return -ENOMEM;
    a.cell = carve(&c, pixels * sizeof *a.cell);
    a.seen = carve(&c, rows * sizeof *a.seen);
    a.first_pixel = carve(&c, (a.images + 1) * sizeof(size_t));
    a.first_row = carve(&c, (a.images + 1) * sizeof(size_t));
    a.first_unit = carve(&c, (a.images + 1) * sizeof(size_t));
    number(&a, dsource, nshards);
    cpu_over_shards(dev, &(struct shard_work){ nshards, place_units, place_part, &a });
    threads_each(cpu_threads(dev), a.first_unit[a.images], band_unit, &a);
    return 0;
}
