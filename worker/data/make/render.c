/* SPDX-License-Identifier: Apache-2.0 */ /* Pictures to network inputs, in one pass over the output. For each row: two
 * source rows are blended to floats, columns are picked and blended, the colour is changed, the row is written. The row
 * is compiled for AVX-512, for AVX2 and for any processor. All give the same bits, since no build contracts or
 * reassociates. The pragma is needed: -O2 leaves these loops scalar, at half the speed, and compilers keep branches for
 * floating-point exception flags, which are never read. */
#pragma GCC optimize("O3", "no-trapping-math")
#include <string.h>

#include "proto/host/cpu.h"
#include "worker/data/make/augment.h"

#define INNER static inline __attribute__((always_inline))

enum { BLOCK = 16 };

static const float GREY = 0.5f;

static size_t padded(size_t n)
{
    return (n + BLOCK - 1) / BLOCK * BLOCK;
}

/* Scratch memory by name. Rows have room for whole blocks. */
struct work {
    float *line;      /* [w * 3] blended source row */
    float *r, *g, *b; /* [canvas.w] one output row */
    float *weight;    /* [canvas.w] weight of the right neighbour */
    int32_t *left;    /* [canvas.w] index of the left neighbour in line */
    int32_t *step;    /* [canvas.w] 3, or 0 at the last column */
};

size_t render_scratch(int w, struct canvas canvas)
{
    return padded((size_t)w * 3) + 6 * padded((size_t)canvas.w);
}

static struct work lay_out(float *scratch, int w, struct canvas canvas)
{
    size_t row = padded((size_t)canvas.w);
    struct work k = { .line = scratch };

    k.r = scratch + padded((size_t)w * 3);
    k.g = k.r + row;
    k.b = k.g + row;
    k.weight = k.b + row;
    k.left = (void *)(k.weight + row);
    k.step = k.left + row;
    return k;
}

/* Place of output pixel i of `to` among `side` source pixels. Pixel centres lie at halves. */
static float source(int i, int side, int to)
{
    float f = ((float)i + 0.5f) * (float)side / (float)to - 0.5f, last = (float)(side - 1);

    return f < 0.0f ? 0.0f : f > last ? last : f;
}

static void plan_columns(struct work *k, const struct placement *p, int w, int from, int to)
{
    for (int x = from; x < to; x++) {
        float f = source(x - p->x, w, p->w);
        int left = (int)f;

        k->left[x] = left * 3;
        k->step[x] = left + 1 < w ? 3 : 0;
        k->weight[x] = f - (float)left;
    }
}

INNER void fill_grey(float *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] = GREY;
}

INNER void blend_rows(float *restrict line, const uint8_t *above, const uint8_t *below, float weight, size_t n)
{
    const float unit = 1.0f / 255.0f;

    for (size_t i = 0; i < n; i++) {
        float a = (float)above[i], b = (float)below[i];

        line[i] = (a + weight * (b - a)) * unit;
    }
}

INNER void pick_columns(struct work *k, int from, int to)
{
    for (int x = from; x < to; x++) {
        const float *l = k->line + k->left[x], *r = l + k->step[x];
        float f = k->weight[x];

        k->r[x] = l[0] + f * (r[0] - l[0]);
        k->g[x] = l[1] + f * (r[1] - l[1]);
        k->b[x] = l[2] + f * (r[2] - l[2]);
    }
}

INNER float clamp01(float v)
{
    v = v > 0.0f ? v : 0.0f;
    return v < 1.0f ? v : 1.0f;
}

/* Changes saturation and brightness without computing a hue: each channel keeps its share of (max - channel). */
INNER void colour_block(float *restrict r, float *restrict g, float *restrict b, float saturation, float exposure)
{
    for (int i = 0; i < BLOCK; i++) {
        float rg = r[i] > g[i] ? r[i] : g[i], top = rg > b[i] ? rg : b[i];

        r[i] = clamp01(exposure * (top - saturation * (top - r[i])));
        g[i] = clamp01(exposure * (top - saturation * (top - g[i])));
        b[i] = clamp01(exposure * (top - saturation * (top - b[i])));
    }
}

/* Distance of a channel below the top one, 0 .. 1, at hue k (6 is a full turn; at 0 the channel begins to fall). */
INNER float fall(float k)
{
    float t;

    k = k >= 6.0f ? k - 6.0f : k;
    t = k < 4.0f - k ? k : 4.0f - k;
    t = t > 0.0f ? t : 0.0f;
    return t < 1.0f ? t : 1.0f;
}

/* The HSV cone in terms of RGB: value = top, value * saturation = top - bottom, so a channel is top - (top - bottom) *
 * fall(hue). */
INNER void hue_block(float *restrict r, float *restrict g, float *restrict b, float turn, float saturation, float exposure)
{
    for (int i = 0; i < BLOCK; i++) {
        float rg = r[i] > g[i] ? r[i] : g[i], top = rg > b[i] ? rg : b[i];
        float lo = r[i] < g[i] ? r[i] : g[i], range = top - (lo < b[i] ? lo : b[i]);
        float over = 1.0f / (range > 0.0f ? range : 1.0f);
        float from_b = 4.0f + (r[i] - g[i]) * over, from_g = 2.0f + (b[i] - r[i]) * over, from_r = (g[i] - b[i]) * over;
        float hue = top == g[i] ? from_g : from_b;

        hue = top == r[i] ? from_r : hue;
        hue = hue + turn;
        hue = hue < 0.0f ? hue + 6.0f : hue;
        hue = hue >= 6.0f ? hue - 6.0f : hue;
        range = range * saturation * exposure;
        top = top * exposure;
        r[i] = clamp01(top - range * fall(hue + 5.0f));
        g[i] = clamp01(top - range * fall(hue + 3.0f));
        b[i] = clamp01(top - range * fall(hue + 1.0f));
    }
}

INNER void colour_row(struct work *k, const struct placement *p)
{
    for (int x = 0; x < p->canvas.w; x += BLOCK) {
        if (p->hue != 0.0f)
            hue_block(k->r + x, k->g + x, k->b + x, 6.0f * p->hue, p->saturation, p->exposure);
        else
            colour_block(k->r + x, k->g + x, k->b + x, p->saturation, p->exposure);
    }
}

INNER void write_row(const struct work *k, const struct placement *p, float *restrict out)
{
    int step = p->flip ? -1 : 1;

    for (int x = 0, from = p->flip ? p->canvas.w - 1 : 0; x < p->canvas.w; x++, from += step) {
        out[x * 3] = k->r[from];
        out[x * 3 + 1] = k->g[from];
        out[x * 3 + 2] = k->b[from];
    }
}

/* All rows above and below the picture are equal: grey .5 with the same change of colour. */
static void write_margin(struct work *k, const struct placement *p, float *out, int from, int to)
{
    size_t row = (size_t)p->canvas.w * 3;
    float *first = NULL;

    for (int y = from; y < to; y++) {
        float *dst = out + (size_t)(p->vflip ? p->canvas.h - 1 - y : y) * row;

        if (first) {
            memcpy(dst, first, row * sizeof *dst);
            continue;
        }
        first = dst;
        fill_grey(k->r, 3 * padded((size_t)p->canvas.w));
        if (p->colour)
            colour_row(k, p);
        write_row(k, p, dst);
    }
}

/* One row of the input that the picture covers. Its columns [x0, x1) come from two source rows. */
struct row {
    const uint8_t *above, *below;
    float weight; /* weight of the row below */
    size_t pitch;
    int x0, x1;
    float *out;
};

INNER void make_row(struct work *k, const struct placement *p, const struct row *r)
{
    blend_rows(k->line, r->above, r->below, r->weight, r->pitch);
    if (p->colour)
        fill_grey(k->r, 3 * padded((size_t)p->canvas.w));
    pick_columns(k, r->x0, r->x1);
    if (p->colour)
        colour_row(k, p);
    write_row(k, p, r->out);
}

static void make_row_any(struct work *k, const struct placement *p, const struct row *r)
{
    make_row(k, p, r);
}

typedef void make_row_fn(struct work *k, const struct placement *p, const struct row *r);

#ifdef __x86_64__
__attribute__((target("avx2"))) static void make_row_avx2(struct work *k, const struct placement *p, const struct row *r)
{
    make_row(k, p, r);
}

__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) static void make_row_avx512(struct work *k, const struct placement *p,
                                                                                          const struct row *r)
{
    make_row(k, p, r);
}

static make_row_fn *const builds[] = { make_row_any, make_row_avx2, make_row_avx512 };

int render_builds(void)
{
    return cpu_has_avx512() ? 3 : cpu_has_avx2() ? 2 : 1;
}
#else
static make_row_fn *const builds[] = { make_row_any };

int render_builds(void)
{
    return 1;
}
#endif

static int within(int v, int size)
{
    return v < 0 ? 0 : v > size ? size : v;
}

void render_by(int build, const struct placement *p, const uint8_t *rgb, int w, int h, float *out, float *scratch)
{
    struct work k = lay_out(scratch, w, p->canvas);
    int y0 = within(p->y, p->canvas.h), y1 = within(p->y + p->h, p->canvas.h);
    struct row r = { .pitch = (size_t)w * 3, .x0 = within(p->x, p->canvas.w), .x1 = within(p->x + p->w, p->canvas.w) };

    plan_columns(&k, p, w, r.x0, r.x1);
    write_margin(&k, p, out, 0, y0);
    write_margin(&k, p, out, y1, p->canvas.h);
    fill_grey(k.r, 3 * padded((size_t)p->canvas.w));
    for (int y = y0; y < y1; y++) {
        float f = source(y - p->y, h, p->h);
        int above = (int)f, below = above + 1 < h ? above + 1 : above;

        r.above = rgb + (size_t)above * r.pitch;
        r.below = rgb + (size_t)below * r.pitch;
        r.weight = f - (float)above;
        r.out = out + (size_t)(p->vflip ? p->canvas.h - 1 - y : y) * (size_t)p->canvas.w * 3;
        builds[build](&k, p, &r);
    }
}

void render(const struct placement *p, const uint8_t *rgb, int w, int h, float *out, float *scratch)
{
    render_by(render_builds() - 1, p, rgb, w, h, out, scratch);
}
