/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/conv_rows.c - see conv_rows.h. */
#include "worker/cpu/conv_rows.h"

#include <string.h>

#include "worker/core/simd.h"
#include "worker/cpu/conv.h"
#include "worker/cpu/conv_tiles.h"

enum {
    PART_PIXELS = 128,       /* outputs of a part: many enough to use a panel of weights often, few enough for the L2 cache */
    PART_PIXELS_THIN = 512,  /* the same for few channels: fewer rows are copied twice */
    PART_PIXELS_TILES = 256, /* for tiles, at most: positions should fill blocks */
    THIN = 16,               /* channels */
    SEG_PIXELS = 128,        /* outputs in a row of a part */
    FAR = 1024               /* floats, see collides() */
};

static int cut(int length, int most)
{
    return (length + most - 1) / most;
}

static bool single(const struct rows *g)
{
    return g->taps_y == 1 && g->taps_x == 1;
}

struct rows rows_of(const struct conv_call *q, const struct tensor *x, const struct tensor *y)
{
    return (struct rows){ .images = y->n * q->nshards,
                          .per = y->n,
                          .joined = q->stats ? 1 : y->n,
                          .oh = y->h,
                          .ow = y->w,
                          .ih = x->h,
                          .iw = x->w,
                          .taps_y = q->r,
                          .taps_x = q->s,
                          .stride = q->stride,
                          .off_y = -q->pad,
                          .off_x = -q->pad,
                          .c = x->c,
                          .k = y->c,
                          .out_step = 1,
                          .out_w = y->w,
                          .out_h = y->h };
}

void rows_cut(struct rows *g, bool half)
{
    int most;

    if (single(g) && g->stride == 1 && g->off_y == 0 && g->off_x == 0 && g->out_step == 1 && g->ih == g->oh && g->iw == g->ow) {
        int joined = g->oh * g->ow == 1 && g->joined > 1 ? g->joined : 1;

        g->images /= joined;
        g->per /= joined;
        g->ow *= g->oh * joined;
        g->iw = g->out_w = g->ow;
        g->oh = g->ih = g->out_h = 1;
    }
    g->pitch = single(g) ? gemm_ld(g->c) : g->c;
    g->segs = cut(g->ow, SEG_PIXELS);
    most = (g->c <= THIN ? PART_PIXELS_THIN : half ? PART_PIXELS_TILES : PART_PIXELS) / cut(g->ow, g->segs);
    g->band_rows = most < g->oh ? most : g->oh;
    if (half)
        g->band_rows = tiles_band_rows(g);
    g->bands = cut(g->oh, g->band_rows);
    g->band_rows = cut(g->oh, g->bands);
    g->bands = cut(g->oh, g->band_rows);
}

struct rows_part rows_part(const struct rows *g, int index)
{
    int seg = index % g->segs, band = index / g->segs % g->bands, y = band * g->band_rows;
    int x = (int)((long)g->ow * seg / g->segs), end = (int)((long)g->ow * (seg + 1) / g->segs);

    return (struct rows_part){
        .image = index / rows_parts(g), .y = y, .x = x, .h = g->oh - y < g->band_rows ? g->oh - y : g->band_rows, .w = end - x
    };
}

static int span(int outputs, int stride, int taps)
{
    return taps > 0 ? (outputs - 1) * stride + taps : 0;
}

long rows_width(const struct rows *g, const struct rows_part *p)
{
    return (long)span(p->w, g->stride, g->taps_x) * g->pitch;
}

size_t rows_buffer(const struct rows *g)
{
    return (size_t)span(g->band_rows, g->stride, g->taps_y) * (size_t)span(rows_widest(g), g->stride, g->taps_x) * (size_t)g->pitch;
}

/* Copies whole pixels. They may lie so far apart that a line of a pixel would have left the cache before its second
 * use. */
static void copy_pixel(const float *from, const struct affine *act, int channels, float *to)
{
    int c = 0;

    if (!act->scale) {
        memcpy(to, from, (size_t)channels * sizeof *to);
        return;
    }
    for (; c + VW <= channels; c += VW)
        vstore(to + c, vact(vfma(vload(from + c), vload(act->scale + c), vload(act->shift + c)), vload(act->slope + c)));
    if (c < channels) {
        int n = channels - c;

        vstore_n(to + c,
                 vact(vfma(vload_n(from + c, n), vload_n(act->scale + c, n), vload_n(act->shift + c, n)), vload_n(act->slope + c, n)), n);
    }
}

static void copy_pixels(const struct rows *g, const float *from, int stride, const struct affine *act, int count, float *to)
{
    if (!act->scale && stride == g->c && g->pitch == g->c) {
        memcpy(to, from, (size_t)count * (size_t)g->c * sizeof *to);
        return;
    }
    for (int i = 0; i < count; i++)
        copy_pixel(from + (long)i * stride, act, g->c, to + (long)i * g->pitch);
}

/* Copies the pixels under a part's outputs. Each output must read one existing pixel. */
static void copy_points(const struct rows *g, const struct rows_part *p, const float *from, const struct operand *in, float *buf)
{
    for (int i = 0; i < p->h; i++)
        copy_pixels(g, from + (long)i * g->stride * g->iw * in->x.stride, g->stride * in->x.stride, &in->act, p->w,
                    buf + (long)i * p->w * g->pitch);
}

static int clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void copy_rows(const struct rows *g, const struct rows_part *p, const struct operand *x, float *buf)
{
    const struct operand *in = &x[p->image / g->per];
    const float *image = (const float *)in->x.data + (long)(p->image % g->per) * g->ih * g->iw * in->x.stride;
    int height = span(p->h, g->stride, g->taps_y), width = span(p->w, g->stride, g->taps_x);
    int x0 = p->x * g->stride + g->off_x, left = clamp(-x0, 0, width), right = clamp(g->iw - x0, left, width);

    for (int r = 0; r < height; r++, buf += (long)width * g->pitch) {
        int y = p->y * g->stride + g->off_y + r;

        if (y < 0 || y >= g->ih || left == right) {
            memset(buf, 0, (size_t)width * (size_t)g->pitch * sizeof *buf);
            continue;
        }
        memset(buf, 0, (size_t)left * (size_t)g->pitch * sizeof *buf);
        copy_pixels(g, image + ((long)y * g->iw + x0 + left) * in->x.stride, in->x.stride, &in->act, right - left,
                    buf + (long)left * g->pitch);
        memset(buf + (long)right * g->pitch, 0, (size_t)(width - right) * (size_t)g->pitch * sizeof *buf);
    }
}

/* True for pixels so far apart that they share few sets of the L1 cache. A tile of the GEMM would then lose its rows
 * between uses. */
static bool collides(const struct operand *in, int stride)
{
    return (long)in->x.stride * stride % FAR == 0;
}

struct rows_input rows_input(const struct rows *g, const struct rows_part *p, const struct operand *x, float *buf)
{
    const struct operand *in = &x[p->image / g->per];
    long row = (long)g->stride * g->iw * in->x.stride, pixel = (long)g->stride * in->x.stride;
    const float *from = (const float *)in->x.data + (long)(p->image % g->per) * g->ih * g->iw * in->x.stride;

    if (!single(g) || g->off_y != 0 || g->off_x != 0 || (g->oh - 1) * g->stride >= g->ih || (g->ow - 1) * g->stride >= g->iw) {
        copy_rows(g, p, x, buf);
        return (struct rows_input){ buf, g->stride * rows_width(g, p), (long)g->stride * g->pitch };
    }
    from += p->y * row + p->x * pixel;
    if (!in->act.scale && !collides(in, g->stride))
        return (struct rows_input){ from, row, pixel };
    copy_points(g, p, from, in, buf);
    return (struct rows_input){ buf, (long)p->w * g->pitch, g->pitch };
}
