/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd_in.c - inputs and output gradients to points. */
#include "worker/cpu/winograd_math.h"

/* The vectors of one patch: pixel (r, s) is at at + r * row + s * col. */
struct patch {
    const float *at;
    long row, col;
};

struct pending {
    vec scale, shift, slope;
};

/* hi, wi: size of the patch; pts of both axes follow from five. Transforms columns first, then rows. v: destination of
 * point (0, 0) of this tile. */
SIMD_FN void input_tile(const struct patch *p, const struct pending *act, float *v, long ld_point, int px, bool pend, bool fy, bool fx)
{
    vec mid[WINO_SIDE][WINO_SIDE]; /* [point of y][pixel of x] */
    const int hi = fy ? 7 : 6, wi = fx ? 7 : 6;

#pragma GCC unroll 7
    for (int s = 0; s < wi; s++) {
        vec d[WINO_SIDE], r[WINO_SIDE];

#pragma GCC unroll 7
        for (int i = 0; i < hi; i++) {
            d[i] = vload(p->at + i * p->row + s * p->col);
            if (pend)
                d[i] = vact(vfma(d[i], act->scale, act->shift), act->slope);
        }
        wino_in(d, r, fy);
#pragma GCC unroll 7
        for (int i = 0; i < hi; i++)
            mid[i][s] = r[i];
    }
#pragma GCC unroll 7
    for (int i = 0; i < hi; i++) {
        vec r[WINO_SIDE];

        wino_in(mid[i], r, fx);
#pragma GCC unroll 7
        for (int j = 0; j < wi; j++)
            vstore(v + (i * px + j) * ld_point, r[j]);
    }
}

SIMD_FN void gradient_tile(const struct patch *p, float *z, long ld_point, int px, bool fy, bool fx)
{
    vec mid[WINO_SIDE][WINO_SIDE];
    const int hi = fy ? 5 : 4, wi = fx ? 5 : 4, py = fy ? 7 : 6, pts = fx ? 7 : 6;

#pragma GCC unroll 7
    for (int s = 0; s < wi; s++) {
        vec d[WINO_SIDE], r[WINO_SIDE];

#pragma GCC unroll 7
        for (int i = 0; i < hi; i++)
            d[i] = vload(p->at + i * p->row + s * p->col);
        wino_out_back(d, r, fy);
#pragma GCC unroll 7
        for (int i = 0; i < py; i++)
            mid[i][s] = r[i];
    }
#pragma GCC unroll 7
    for (int i = 0; i < py; i++) {
        vec r[WINO_SIDE];

        wino_out_back(mid[i], r, fx);
#pragma GCC unroll 7
        for (int j = 0; j < pts; j++)
            vstore(z + (i * px + j) * ld_point, r[j]);
    }
}

typedef void tile_fn(const struct patch *p, const struct pending *act, float *v, long ld_point, int px);

/* clang-format off */
#define TILES(suffix, fy, fx)                                                                                                              \
    static void plain_##suffix(const struct patch *p, const struct pending *act, float *v, long ld, int px)                                \
    { (void)act; input_tile(p, NULL, v, ld, px, false, fy, fx); }                                                                          \
    static void active_##suffix(const struct patch *p, const struct pending *act, float *v, long ld, int px)                               \
    { input_tile(p, act, v, ld, px, true, fy, fx); }                                                                                       \
    static void back_##suffix(const struct patch *p, const struct pending *act, float *v, long ld, int px)                                 \
    { (void)act; gradient_tile(p, v, ld, px, fy, fx); }
TILES(44, false, false)
TILES(45, false, true)
TILES(54, true, false)
TILES(55, true, true)
/* clang-format on */

/* [5 high][5 wide] */
static tile_fn *const plain[2][2] = { { plain_44, plain_45 }, { plain_54, plain_55 } };
static tile_fn *const active[2][2] = { { active_44, active_45 }, { active_54, active_55 } };
static tile_fn *const back[2][2] = { { back_44, back_45 }, { back_54, back_55 } };

/* The window of an image that one tile reads. Its part outside of the image is zero. */
struct window {
    const float *image;
    int stride, h, w;         /* of the image */
    int y, x, hi, wi;         /* of the window */
    const struct affine *act; /* of the shard; scale == NULL: nothing pending */
};

static bool inside(const struct window *q)
{
    return q->y >= 0 && q->x >= 0 && q->y + q->hi <= q->h && q->x + q->wi <= q->w;
}

static struct pending pending_at(const struct affine *a, int ch, int lanes)
{
    return (struct pending){ vload_n(a->scale + ch, lanes), vload_n(a->shift + ch, lanes), vload_n(a->slope + ch, lanes) };
}

/* Copies `lanes` channels of a window, activated, into a dense patch. Used at the image's edges and for vectors that
 * are not full. */
static struct patch gather(const struct window *q, int ch, int lanes, float *buf)
{
    bool act = q->act->scale != NULL;
    struct pending a = { vset1(0.0f), vset1(0.0f), vset1(0.0f) };

    if (act && lanes > 0)
        a = pending_at(q->act, ch, lanes);
    for (int i = 0; i < q->hi; i++)
        for (int j = 0; j < q->wi; j++) {
            int y = q->y + i, x = q->x + j;
            vec d = vset1(0.0f);

            if (lanes > 0 && y >= 0 && y < q->h && x >= 0 && x < q->w) {
                d = vload_n(q->image + ((long)y * q->w + x) * q->stride + ch, lanes);
                if (act)
                    d = vact(vfma(d, a.scale, a.shift), a.slope);
            }
            vstore(buf + (i * q->wi + j) * VW, d);
        }
    return (struct patch){ buf, (long)q->wi * VW, VW };
}

/* All channels of one tile, one vector at a time. Lanes past the last channel are zero. */
struct target {
    float *v; /* point (0, 0), channel 0 of this tile */
    long ld_point, ld_panel;
    int panel, px;
};

static void transform(const struct window *q, int channels, tile_fn *dense, tile_fn *with_act, const struct target *to)
{
    float buf[WINO_SIDE * WINO_SIDE * VW] __attribute__((aligned(64)));
    bool in = inside(q);

    for (int ch = 0; ch < round_up(channels, 16); ch += VW) {
        int lanes = vlanes(channels, ch);
        float *v = to->v + ch / to->panel * to->ld_panel + ch % to->panel;

        if (in && lanes == VW) {
            struct patch p = { q->image + ((long)q->y * q->w + q->x) * q->stride + ch, (long)q->w * q->stride, q->stride };

            if (q->act->scale) {
                struct pending a = pending_at(q->act, ch, VW);

                with_act(&p, &a, v, to->ld_point, to->px);
            } else {
                dense(&p, NULL, v, to->ld_point, to->px);
            }
        } else {
            struct patch p = gather(q, ch, lanes, buf);

            dense(&p, NULL, v, to->ld_point, to->px);
        }
    }
}

void wino_input(const struct wino *g, const struct wino_block *b, int from, int to, const struct operand *x, int per, float *v)
{
    for (int t = from; t < to; t++) {
        const struct wino_tile *q = &b->tile[t];
        const struct operand *in = &x[q->image / per];
        const float *data = in->x.data;
        struct window win = { .image = data + (long)(q->image % per) * g->ih * g->iw * in->x.stride,
                              .stride = in->x.stride,
                              .h = g->ih,
                              .w = g->iw,
                              .y = q->y - g->pad,
                              .x = q->x - g->pad,
                              .hi = q->my + 2,
                              .wi = q->mx + 2,
                              .act = &in->act };
        struct target target = { v + (long)q->row * g->pv, (long)b->rows * g->cv, (long)b->rows * g->pv, g->pv, g->x.pts };

        transform(&win, g->c, plain[q->my == 5][q->mx == 5], active[q->my == 5][q->mx == 5], &target);
    }
}

void wino_gradient(const struct wino *g, const struct wino_block *b, int from, int to, const struct tensor *dy, int per, float *z)
{
    static const struct affine none = { NULL, NULL, NULL };

    for (int t = from; t < to; t++) {
        const struct wino_tile *q = &b->tile[t];
        const struct tensor *in = &dy[q->image / per];
        const float *data = in->data;
        struct window win = { .image = data + (long)(q->image % per) * g->h * g->w * in->stride,
                              .stride = in->stride,
                              .h = g->h,
                              .w = g->w,
                              .y = q->y,
                              .x = q->x,
                              .hi = q->my,
                              .wi = q->mx,
                              .act = &none };
        struct target target = { z + (long)q->row * g->pz, (long)b->rows * g->cz, (long)b->rows * g->pz, g->pz, g->x.pts };
        tile_fn *fn = back[q->my == 5][q->mx == 5];

        transform(&win, g->k, fn, fn, &target);
    }
}
