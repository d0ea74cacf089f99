/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_warp.c - poses and warps: the vectors of specs featdepth
 * section 12, differences, the scalar bodies on every device and in every shard, and positions that are no number.
 * uses: proto worker/core cpu cuda */
#include "tests/device/golden_json.h"

#include <math.h>

#include "worker/kernels/pose.h"
#include "worker/kernels/warp.h"

/* ---- poses ---- */

struct pose_case {
    float x[POSE_IN], old[POSE_IN], dy[POSE_OUT], beta;
    bool invert;
};

/* y, then dx. */
static void run_pose(struct device *dev, const void *arg, void *ret)
{
    const struct pose_case *t = arg;
    struct tensor x = tensor_f32(put(dev, t->x, sizeof t->x), 1, 1, 1, POSE_IN), dx = x, y, dy;
    float *out = ret;
    struct err err;

    dx.data = put(dev, t->old, sizeof t->old);
    y = tensor_f32(put(dev, NULL, sizeof t->dy), 1, 1, 1, POSE_OUT);
    dy = tensor_f32(put(dev, t->dy, sizeof t->dy), 1, 1, 1, POSE_OUT);
    if (dev->on->warp->pose_fwd(dev, t->invert, &y, &x, 1, &err) < 0 ||
        dev->on->warp->pose_bwd(dev, t->invert, &dx, t->beta, &dy, &x, 1, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    get(dev, out, y.data, sizeof t->dy);
    get(dev, out + POSE_OUT, dx.data, sizeof t->old);
}

static void poses_golden(void **state)
{
    json_t *root = golden_open(), *all = member(root, "axis_angle");

    (void)state;
    for (size_t i = 0; i < 2 * json_array_size(all); i++) {
        json_t *one = json_array_get(all, i / 2), *way = member(one, i % 2 ? "invert" : "forward");
        float *a = numbers_in_json(member(one, "axisangle"), 3), *tr = numbers_in_json(member(one, "translation"), 3);
        float *dy = numbers_in_json(member(one, "upstream"), 16), *m = numbers_in_json(member(way, "M"), 16);
        float *da = numbers_in_json(member(way, "grad_axisangle"), 3), *dt = numbers_in_json(member(way, "grad_translation"), 3);
        struct pose_case t = { .invert = i % 2 };
        float out[POSE_OUT + POSE_IN];

        memcpy(t.x, a, 3 * sizeof *a);
        memcpy(t.x + 3, tr, 3 * sizeof *tr);
        memcpy(t.dy, dy, sizeof t.dy);
        same_on_all(run_pose, &t, out, sizeof out);
        close_to(out, m, POSE_OUT, 1e-7, 1e-7, "pose");
        close_to(out + POSE_OUT, da, 3, 1e-6, 1e-5, "gradient of the axis");
        close_to(out + POSE_OUT + 3, dt, 3, 1e-6, 1e-5, "gradient of the translation");
        free(a), free(tr), free(dy), free(m), free(da), free(dt);
    }
    json_decref(root);
}

/* Gradients are added to the earlier values; angles beyond a turn; NaN stays NaN. */
static void poses_far(void **state)
{
    static const float angle[] = { 0.0f, 1e-9f, 1.5f, 3.1f, 3.2f, 4.8f, 7.0f, 1000.0f };
    struct pose_case t = { .x = { 0, 0, 0, 1, 2, 3 }, .old = { 1, 2, 3, 4, 5, 6 }, .beta = 1.0f };
    float out[POSE_OUT + POSE_IN];

    (void)state;
    for (size_t i = 0; i < sizeof angle / sizeof *angle; i++) {
        double a = (double)angle[i];

        t.x[2] = angle[i];
        same_on_all(run_pose, &t, out, sizeof out);
        near((double)out[0], cos(a), 1e-6, "cosine", i);
        near((double)out[4], sin(a), 1e-6, "sine", i);
        for (size_t k = 0; k < POSE_IN; k++)
            near((double)out[POSE_OUT + k], (double)t.old[k], 0, "what was there", k);
    }
    t.x[0] = NAN;
    same_on_all(run_pose, &t, out, sizeof out);
    assert_true(isnan(out[0]) && isnan(out[10]));
}

/* ---- warps ---- */

enum { SHARDS = 3, IMAGES = 2 };

struct warp_case {
    struct warp w;
    int nshards, n[SHARDS], h[SHARDS], wide[SHARDS], c, gap;
    int source_h, source_w; /* 0: as h x wide */
    float beta;
    /* NULL: made up */
    const float *source, *disp, *pose, *camera, *dy;
};

static struct tensor shape_of(const struct warp_case *t, int v, int c, bool source)
{
    struct tensor x =
        tensor_f32(NULL, t->n[v], source && t->source_h ? t->source_h : t->h[v], source && t->source_w ? t->source_w : t->wide[v], c);

    x.stride = c + (c > 1 ? t->gap : 0);
    return x;
}

static size_t floats_of(const struct tensor *x)
{
    return tensor_pixels(x) * (size_t)x->stride;
}

struct sides {
    struct tensor source, disp, pose, dsource, ddisp, dpose, y, dy;
};

static struct sides sides_of(const struct warp_case *t, int v)
{
    struct sides s;

    s.source = s.dsource = shape_of(t, v, t->c, true);
    s.disp = s.ddisp = shape_of(t, v, 1, false);
    s.y = s.dy = shape_of(t, v, t->c, false);
    s.pose = s.dpose = tensor_f32(NULL, t->n[v], 1, 1, POSE_OUT);
    return s;
}

/* Small turns and steps, so that most pixels fall near where they came from, and some outside. */
static float *poses_made_up(int n, uint64_t seed)
{
    float *draw = numbers((size_t)n * POSE_IN, seed, -0.15f, 0.15f), *pose = malloc((size_t)n * POSE_OUT * sizeof *pose);

    assert_non_null(pose);
    for (int i = 0; i < n; i++)
        pose_matrix(pose + i * POSE_OUT, draw + i * POSE_IN, i % 2);
    free(draw);
    return pose;
}

static float *given(const float *given, size_t n, uint64_t seed, float lo, float hi)
{
    float *x = numbers(n, seed, lo, hi);

    if (given)
        memcpy(x, given, n * sizeof *x);
    return x;
}

/* Host numbers of a shard; filled by fill(), freed by let_go(). */
struct host {
    float *source, *disp, *pose, *camera, *dy, *y, *dsource, *ddisp, *dpose;
};

static struct host fill(const struct warp_case *t, int v)
{
    struct sides s = sides_of(t, v);
    uint64_t seed = 100 * (uint64_t)v;
    struct host h;

    h.source = given(t->source, floats_of(&s.source), seed + 1, -2.0f, 2.0f);
    h.disp = given(t->disp, floats_of(&s.disp), seed + 2, 0.05f, 0.6f);
    h.pose = poses_made_up(t->n[v], seed + 3);
    h.camera = given(t->camera, (size_t)t->n[v] * CAMERA_NUMBERS, seed + 4, 0.4f, 0.6f);
    for (int i = 0; i < t->n[v] * CAMERA_NUMBERS && !t->camera; i++)
        h.camera[i] *= (float)(i % 2 ? s.disp.h : s.disp.w);
    if (t->pose)
        memcpy(h.pose, t->pose, (size_t)t->n[v] * POSE_OUT * sizeof *h.pose);
    h.dy = given(t->dy, floats_of(&s.dy), seed + 5, -1.0f, 1.0f);
    h.y = numbers(floats_of(&s.y), seed + 6, -1.0f, 1.0f);
    h.dsource = numbers(floats_of(&s.dsource), seed + 7, -1.0f, 1.0f);
    h.ddisp = numbers(floats_of(&s.ddisp), seed + 8, -1.0f, 1.0f);
    h.dpose = numbers((size_t)t->n[v] * POSE_OUT, seed + 9, -1.0f, 1.0f);
    return h;
}

static void let_go(struct host *h)
{
    free(h->source), free(h->disp), free(h->pose), free(h->camera), free(h->dy);
    free(h->y), free(h->dsource), free(h->ddisp), free(h->dpose);
}

static void *place_on(struct device *dev, struct tensor *t, const float *host)
{
    return t->data = put(dev, host, floats_of(t) * sizeof *host);
}

static size_t results_of(const struct warp_case *t)
{
    size_t n = 0;

    for (int v = 0; v < t->nshards; v++) {
        struct sides s = sides_of(t, v);

        n += floats_of(&s.y) + floats_of(&s.dsource) + floats_of(&s.ddisp) + floats_of(&s.dpose);
    }
    return n;
}

/* y, dsource, ddisp and dpose of each shard. */
static void run_warp(struct device *dev, const void *arg, void *ret)
{
    struct tensor source[SHARDS], disp[SHARDS], pose[SHARDS], dsource[SHARDS], ddisp[SHARDS], dpose[SHARDS], y[SHARDS], dy[SHARDS];
    const struct warp_case *t = arg;
    const float *camera[SHARDS];
    struct warp_in in = { source, disp, pose, camera };
    float *out = ret;
    struct err err;

    for (int v = 0; v < t->nshards; v++) {
        struct sides s = sides_of(t, v);
        struct host h = fill(t, v);

        place_on(dev, &s.source, h.source), place_on(dev, &s.disp, h.disp), place_on(dev, &s.pose, h.pose);
        place_on(dev, &s.dsource, h.dsource), place_on(dev, &s.ddisp, h.ddisp), place_on(dev, &s.dpose, h.dpose);
        place_on(dev, &s.y, h.y), place_on(dev, &s.dy, h.dy);
        camera[v] = put(dev, h.camera, (size_t)t->n[v] * CAMERA_NUMBERS * sizeof *h.camera);
        source[v] = s.source, disp[v] = s.disp, pose[v] = s.pose, y[v] = s.y, dy[v] = s.dy;
        dsource[v] = s.dsource, ddisp[v] = s.ddisp, dpose[v] = s.dpose;
        let_go(&h);
    }
    if (dev->on->warp->fwd(dev, &t->w, y, &in, t->nshards, &err) < 0 ||
        dev->on->warp->bwd(dev, &t->w, ddisp, t->beta, dpose, t->beta, dy, &in, t->nshards, &err) < 0 ||
        dev->on->warp->bwd_source(dev, &t->w, dsource, t->beta, dy, &in, t->nshards, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    for (int v = 0; v < t->nshards; v++) {
        const struct tensor *part[] = { &y[v], &dsource[v], &ddisp[v], &dpose[v] };

        for (int i = 0; i < 4; out += floats_of(part[i++]))
            get(dev, out, part[i]->data, floats_of(part[i]) * sizeof *out);
    }
}

static float *results(const struct warp_case *t)
{
    float *out = malloc(results_of(t) * sizeof *out);

    assert_non_null(out);
    same_on_all(run_warp, t, out, results_of(t) * sizeof *out);
    return out;
}

/* ---- results of the scalar bodies ---- */

static void same(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s[%zu] is %.9g, by the scalar body %.9g", what, i, (double)got[i], (double)want[i]);
}

/* The sums of a row's pieces, lane by lane. */
struct row_sums {
    struct warp_lane lane[WARP_LANES];
};

static void piece_sums(double ret[WARP_SUMS], const struct row_sums *s, int y)
{
    float all[3][3];

    for (int k = 0; k < 9; k++) {
        float lane[WARP_LANES];

        for (int j = 0; j < WARP_LANES; j++)
            lane[j] = k < 3 ? s->lane[j].q[k] : k < 6 ? s->lane[j].e[k - 3] : s->lane[j].ex[k - 6];
        all[k / 3][k % 3] = warp_sum(lane);
    }
    warp_piece_sums(ret, all[0], all[1], all[2], y);
}

/* A pixel of an image: writes y, adds to dsource, returns its gradient. m's pointers are host memory. */
static struct warp_back by_pixel(const struct warp_image *m, const struct warp_view *view, int y, int x, float *dsource)
{
    size_t pixel = (size_t)(y * m->w + x);
    struct warp_point p = warp_point(&m->lens, view, (float)x, (float)y, m->disp[pixel]);
    struct warp_weights w = warp_weights(p.fx, p.fy);
    float u[WARP_LANES] = { 0 }, v[WARP_LANES] = { 0 };

    for (int k = 0; k < m->c; k++) {
        float f[4], g = m->dy[pixel * (size_t)m->y_stride + (size_t)k];

        for (int i = 0; i < 4; i++) {
            int cell = (p.y0 + i / 2 * m->lens.below) * m->source_w + p.x0 + i % 2 * m->lens.right;
            size_t at = (size_t)(cell * m->source_stride + k);

            f[i] = m->source[at];
            dsource[at] = fmaf(w.w[i], g, dsource[at]);
        }
        m->y[pixel * (size_t)m->y_stride + (size_t)k] = warp_value(w, f[0], f[1], f[2], f[3]);
        u[k % WARP_LANES] = fmaf(g, warp_slope(p.fy, f[0], f[1], f[2], f[3]), u[k % WARP_LANES]);
        v[k % WARP_LANES] = fmaf(g, warp_slope(p.fx, f[0], f[2], f[1], f[3]), v[k % WARP_LANES]);
    }
    return warp_back(&m->lens, view, (float)x, (float)y, &p, warp_sum(u), warp_sum(v));
}

static void by_image(const struct warp_image *m, float beta, float *dsource, float *ddisp, float *dpose)
{
    struct warp_view view = warp_view(m->pose, m->camera, m->camera_scale);
    int pieces = warp_pieces(m->w);
    double *sums = calloc((size_t)(m->h * pieces) * WARP_SUMS, sizeof *sums), sum[WARP_SUMS];

    assert_non_null(sums);
    for (int i = 0; i < m->source_h * m->source_w; i++)
        for (int k = 0; k < m->c; k++)
            dsource[i * m->source_stride + k] = beta == 0.0f ? 0.0f : beta * dsource[i * m->source_stride + k];
    for (int y = 0; y < m->h; y++)
        for (int piece = 0; piece < pieces; piece++) {
            struct row_sums s = { 0 };

            for (int x = piece * WARP_PIECE; x < m->w && x < (piece + 1) * WARP_PIECE; x++) {
                struct warp_back b = by_pixel(m, &view, y, x, dsource);

                ddisp[y * m->w + x] = act_store(beta, &ddisp[y * m->w + x], b.disp);
                warp_lane_add(&s.lane[x % WARP_LANES], &b, (float)x);
            }
            piece_sums(sums + (y * pieces + piece) * WARP_SUMS, &s, y);
        }
    for (int step = 1; step < m->h * pieces; step *= 2) /* the tree of tree_sum() */
        for (int i = 0; i + step < m->h * pieces; i += 2 * step)
            for (int k = 0; k < WARP_SUMS; k++)
                sums[i * WARP_SUMS + k] += sums[(i + step) * WARP_SUMS + k];
    memcpy(sum, sums, sizeof sum);
    warp_pose_grad(dpose, beta, sum, m->camera, m->camera_scale);
    free(sums);
}

static void check_bodies(const struct warp_case *t)
{
    float *all = results(t), *out = all;

    for (int v = 0; v < t->nshards; v++) {
        struct host h = fill(t, v);
        struct sides s = sides_of(t, v);
        const float *camera = h.camera;
        struct warp_in in = { &s.source, &s.disp, &s.pose, &camera };
        struct tensor *part[] = { &s.y, &s.dsource, &s.ddisp, &s.dpose };
        const char *name[] = { "y", "dsource", "ddisp", "dpose" };

        s.source.data = h.source, s.disp.data = h.disp, s.pose.data = h.pose;
        s.y.data = h.y, s.dy.data = h.dy, s.dsource.data = h.dsource, s.ddisp.data = h.ddisp, s.dpose.data = h.dpose;
        for (int i = 0; i < t->n[v]; i++) {
            struct warp_image m = warp_image(&t->w, &in, &s.y, 0, i);

            m.dy = h.dy + (m.y - h.y);
            by_image(&m, t->beta, h.dsource + (size_t)i * floats_of(&s.source) / (size_t)t->n[v], h.ddisp + i * m.h * m.w,
                     h.dpose + i * POSE_OUT);
        }
        for (int i = 0; i < 4; out += floats_of(part[i++]))
            same(out, part[i]->data, floats_of(part[i]), name[i]);
        let_go(&h);
    }
    free(all);
}

static struct warp_case several(int c)
{
    return (struct warp_case){
        .w = { 0.1f, 100.0f, true, 1 }, .nshards = SHARDS, .n = { 2, 1, 2 }, .h = { 9, 17, 2 }, .wide = { 13, 21, 33 }, .c = c
    };
}

static void bodies(void **state)
{
    static const int channels[] = { 1, 2, 3, 4, 5, 16, 19, 64, 70 };

    (void)state;
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++) {
        struct warp_case t = several(channels[i]);

        t.gap = (int)(i % 2) * 3;
        t.beta = (float)(i % 3 % 2);
        t.w.align_corners = i % 2 == 0;
        t.w.camera_scale = i % 2 ? 0.5f : 1;
        check_bodies(&t);
    }
}

/* Rows of more than a piece, and more segments than a block lists at once. */
static void wide_rows(void **state)
{
    struct warp_case t = {
        .w = { 0.1f, 100.0f, true, 1 }, .nshards = 2, .n = { 1, 1 }, .h = { 3, 15 }, .wide = { 2 * WARP_PIECE + 19, 600 }, .c = 3
    };

    (void)state;
    check_bodies(&t);
}

/* Sources of a single row and of a single column; and all points at one place. */
static void thin_sources(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct warp_case t = several(3);

        t.source_h = i == 0 ? 1 : 3;
        t.source_w = i == 1 ? 1 : 5;
        t.w.align_corners = i < 3;
        check_bodies(&t);
    }
}

/* ---- golden ---- */

/* Each position is an image of its own. Its pose puts its only pixel there: a third component of just under 1 that eps
 * makes 1. */
static void sampling_golden(void **state)
{
    enum { POINTS = 17, H = 3, W = 4, C = 2 };
    json_t *root = golden_open(), *sampling = member(root, "grid_sample"), *variants = member(sampling, "variants");
    struct tensor shape;
    float *image = picture_in_json(member(sampling, "image"), &shape), *grid = numbers_in_json(member(sampling, "grid"), 2 * POINTS);
    float *upstream = numbers_in_json(member(sampling, "upstream"), C * POINTS);
    float source[POINTS * H * W * C], pose[POINTS * POSE_OUT] = { 0 }, camera[POINTS * CAMERA_NUMBERS] = { 0 }, dy[POINTS * C];

    (void)state;
    for (int i = 0; i < POINTS; i++) {
        memcpy(source + i * H * W * C, image, H * W * C * sizeof *image);
        camera[i * CAMERA_NUMBERS] = camera[i * CAMERA_NUMBERS + 1] = 1.0f;
        pose[i * POSE_OUT + 3] = (float)(((double)grid[2 * i] + 1) / 2 * (W - 1));
        pose[i * POSE_OUT + 7] = (float)(((double)grid[2 * i + 1] + 1) / 2 * (H - 1));
        pose[i * POSE_OUT + 11] = 1.0f - 0x1p-23f;
        for (int k = 0; k < C; k++)
            dy[i * C + k] = upstream[k * POINTS + i];
    }
    assert_int_equal(json_array_size(variants), 2);
    for (size_t which = 0; which < 2; which++) {
        json_t *want = json_array_get(variants, which);
        struct warp_case t = { .w = { 0.1f, 100.0f, json_is_true(member(want, "align_corners")), 1 },
                               .nshards = 1,
                               .n = { POINTS },
                               .h = { 1 },
                               .wide = { 1 },
                               .c = C,
                               .source_h = H,
                               .source_w = W,
                               .source = source,
                               .pose = pose,
                               .camera = camera,
                               .dy = dy };
        float *out = results(&t), *dsource = out + POINTS * C, *dpose = dsource + POINTS * H * W * C + POINTS;
        float *y = numbers_in_json(member(want, "out"), C * POINTS), *dgrid = numbers_in_json(member(want, "grad_grid"), 2 * POINTS);
        float *dimage = picture_in_json(member(want, "grad_image"), &shape), got[C * POINTS], sum[H * W * C] = { 0 }, slope[2 * POINTS];

        for (int i = 0; i < POINTS; i++) {
            for (int k = 0; k < C; k++)
                got[k * POINTS + i] = out[i * C + k];
            for (int k = 0; k < H * W * C; k++)
                sum[k] += dsource[i * H * W * C + k];
            slope[2 * i] = dpose[i * POSE_OUT + 3] * (W - 1) / 2;
            slope[2 * i + 1] = dpose[i * POSE_OUT + 7] * (H - 1) / 2;
        }
        close_to(got, y, C * POINTS, 2e-6, 2e-5, "sampled");
        close_to(sum, dimage, H * W * C, 1e-5, 1e-5, "gradient of the picture");
        close_to(slope, dgrid, 2 * POINTS, 1e-5, 1e-5, "gradient of positions");
        free(out), free(y), free(dgrid), free(dimage);
    }
    free(image), free(grid), free(upstream);
    json_decref(root);
}

/* The camera's inverse is part of the view: with a pose of no motion a pixel stays in place, and the stereo pair's pose
 * moves it along x alone. */
static void cameras_golden(void **state)
{
    json_t *root = golden_open(), *sizes = member(member(root, "intrinsics"), "sizes"), *stereo = member(root, "stereo_T");

    (void)state;
    for (size_t i = 0; i < json_array_size(sizes); i++)
        for (size_t side = 0; side < json_array_size(stereo); side++)
            for (int half = 0; half < 2; half++) {
                json_t *size = json_array_get(sizes, i);
                float *k = numbers_in_json(member(size, half ? "K_half" : "K"), 16),
                      *inv = numbers_in_json(member(size, half ? "inv_K_half" : "inv_K"), 16);
                float t03 = (float)number_of(json_array_get(stereo, side), "T03"),
                      pose[POSE_OUT] = { 1, 0, 0, t03, 0, 1, 0, 0, 0, 0, 1, 0 };
                float camera[CAMERA_NUMBERS] = { k[0], k[5], k[2], k[6] };
                const float whole[CAMERA_NUMBERS] = { 2 * k[0], 2 * k[5], 2 * k[2], 2 * k[6] }; /* as batches have it */
                struct warp_view v = warp_view(pose, half ? whole : camera, half ? 0.5f : 1.0f);

                for (int r = 0; r < 3; r++)
                    for (int c = 0; c < 3; c++)
                        near((double)v.m[r][c], r == c, 1e-6, "view", (size_t)(3 * r + c));
                near((double)v.t[0], (double)(k[0] * t03), 1e-6, "step", 0);
                assert_true(v.t[1] == 0.0f && v.t[2] == 0.0f);
                near(1.0 / (double)camera[0], (double)inv[0], 1e-6, "inverse", 0);
                near(-(double)camera[2] / (double)camera[0], (double)inv[2], 1e-6, "inverse", 2);
                free(k), free(inv);
            }
    json_decref(root);
}

static void depths_golden(void **state)
{
    json_t *root = golden_open(), *ranges = member(root, "disp_to_depth");
    const struct warp_view still = warp_view((float[]){ 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0 }, (float[]){ 1, 1, 0, 0 }, 1);

    (void)state;
    for (size_t i = 0; i < json_array_size(ranges); i++) {
        json_t *range = json_array_get(ranges, i);
        struct warp w = { (float)number_of(range, "min_depth"), (float)number_of(range, "max_depth"), true, 1 };
        float *disp = numbers_in_json(member(range, "disp"), 9), *depth = numbers_in_json(member(range, "depth"), 9);
        struct warp_lens l = warp_lens(&w, 4, 4);

        for (size_t k = 0; k < 9; k++)
            near((double)warp_point(&l, &still, 0, 0, disp[k]).z, (double)depth[k], 2e-5, "depth", k);
        free(disp), free(depth);
    }
    json_decref(root);
}

/* ---- differences ---- */

/* Sum of y * dy of one image after its disparity, pose or source was moved. */
static double through(const struct warp_case *t)
{
    struct sides s = sides_of(t, 0);
    float *out = results(t);
    struct host h = fill(t, 0);
    double sum = 0;

    for (size_t i = 0; i < floats_of(&s.y); i++)
        sum += (double)h.dy[i] * (double)out[i];
    free(out);
    let_go(&h);
    return sum;
}

/* Smooth pictures: the sampled picture has a kink at every cell. */
static void differences(void **state)
{
    enum { H = 12, W = 15, C = 2 };
    struct warp_case t = { .w = { 0.5f, 20.0f, true, 1 }, .nshards = 1, .n = { 1 }, .h = { H }, .wide = { W }, .c = C };
    float source[H * W * C], disp[H * W], pose[POSE_OUT], dy[H * W * C], camera[CAMERA_NUMBERS] = { 9, 10, 7, 6 },
                                                                         *moved[3] = { source, disp, pose };
    static const size_t first[3] = { H * W * C, 2 * H * W * C, 2 * H * W * C + H * W }, count[3] = { H * W * C, H * W, POSE_OUT };
    static const double step[3] = { 0.25, 1.0 / 4096, 1.0 / 8192 };
    float *out;

    (void)state;
    for (int i = 0; i < H * W; i++) {
        disp[i] = 0.5f + 0.02f * sinf((float)i);
        for (int k = 0; k < C; k++) {
            source[i * C + k] = (float)(i % W) * (k ? 0.3f : -0.2f) + (float)(i / W) * 0.25f;
            dy[i * C + k] = cosf((float)(3 * i + k)) + 0.5f;
        }
    }
    pose_matrix(pose, (float[]){ 0.01f, -0.02f, 0.015f, 0.02f, -0.015f, 0.03f }, false);
    t.source = source, t.disp = disp, t.pose = pose, t.camera = camera, t.dy = dy;
    out = results(&t);
    for (int which = 0; which < 3; which++)
        for (size_t i = 0; i < count[which]; i += which < 2 ? 23 : 1) {
            float was = moved[which][i];
            double side[2];

            for (int up = 0; up < 2; up++) {
                moved[which][i] = was + (float)(up ? step[which] : -step[which]);
                side[up] = through(&t);
            }
            moved[which][i] = was;
            near((double)out[first[which] + i], (side[1] - side[0]) / (2 * step[which]), 2e-2, "gradient", i);
        }
    free(out);
}

/* ---- positions that are no number ---- */

static void no_numbers(void **state)
{
    enum { N = 5, H = 2, W = 3 };
    float pose[N * POSE_OUT], camera[N * CAMERA_NUMBERS], disp[N * H * W], *out;
    struct warp_case t = { .w = { 0.1f, 100.0f, true, 1 },
                           .nshards = 1,
                           .n = { N },
                           .h = { H },
                           .wide = { W },
                           .c = 3,
                           .pose = pose,
                           .camera = camera,
                           .disp = disp };
    struct sides s = sides_of(&t, 0);

    (void)state;
    for (int i = 0; i < N; i++) {
        pose_matrix(pose + i * POSE_OUT, (float[POSE_IN]){ 0 }, false);
        memcpy(camera + i * CAMERA_NUMBERS, (float[]){ 2, 2, 1, 1 }, CAMERA_NUMBERS * sizeof *camera);
    }
    for (int i = 0; i < N * H * W; i++)
        disp[i] = 0.3f;
    pose[3] = NAN;
    pose[POSE_OUT + 3] = INFINITY;
    pose[2 * POSE_OUT + 11] = -1e9f; /* behind the camera */
    disp[3 * H * W] = NAN;
    disp[3 * H * W + 1] = INFINITY;
    pose[4 * POSE_OUT + 7] = -INFINITY;
    check_bodies(&t);
    out = results(&t);
    for (size_t i = 0; i < results_of(&t); i++)
        if (!isfinite(out[i]))
            fail_msg("number %zu of y (%zu), dsource, ddisp, dpose is %g", i, floats_of(&s.y), (double)out[i]);
    free(out);
}

/* ---- unwanted results ---- */

static void run_parts(struct device *dev, const void *arg, void *ret)
{
    const struct warp_case *t = arg;
    struct sides s = sides_of(t, 0);
    struct host h = fill(t, 0);
    const float *camera = put(dev, h.camera, (size_t)t->n[0] * CAMERA_NUMBERS * sizeof *h.camera);
    struct warp_in in = { &s.source, &s.disp, &s.pose, &camera };
    float *out = ret;
    struct err err;

    place_on(dev, &s.source, h.source), place_on(dev, &s.disp, h.disp), place_on(dev, &s.pose, h.pose), place_on(dev, &s.dy, h.dy);
    place_on(dev, &s.ddisp, h.ddisp), place_on(dev, &s.dpose, h.dpose);
    if (dev->on->warp->bwd(dev, &t->w, &s.ddisp, 0.0f, NULL, 0.0f, &s.dy, &in, 1, &err) < 0 ||
        dev->on->warp->bwd(dev, &t->w, NULL, 0.0f, &s.dpose, 0.0f, &s.dy, &in, 1, &err) < 0)
        fail_msg("%s: %s", dev->ops->name, err.msg);
    get(dev, out, s.ddisp.data, floats_of(&s.ddisp) * sizeof *out);
    get(dev, out + floats_of(&s.ddisp), s.dpose.data, floats_of(&s.dpose) * sizeof *out);
    let_go(&h);
}

static void parts(void **state)
{
    struct warp_case t = several(3);
    struct sides s = sides_of(&t, 0);
    size_t n = floats_of(&s.ddisp) + floats_of(&s.dpose);
    float *some = malloc(n * sizeof *some), *all;

    (void)state;
    assert_non_null(some);
    t.nshards = 1;
    same_on_all(run_parts, &t, some, n * sizeof *some);
    all = results(&t);
    same(some, all + floats_of(&s.y) + floats_of(&s.dsource), n, "ddisp, dpose");
    free(some), free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poses_golden),   cmocka_unit_test(poses_far),     cmocka_unit_test(bodies),
        cmocka_unit_test(wide_rows),      cmocka_unit_test(thin_sources),  cmocka_unit_test(sampling_golden),
        cmocka_unit_test(cameras_golden), cmocka_unit_test(depths_golden), cmocka_unit_test(differences),
        cmocka_unit_test(no_numbers),     cmocka_unit_test(parts),
    };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
