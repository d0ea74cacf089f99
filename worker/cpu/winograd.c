/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/winograd.c - cuts images into tiles, strips and blocks. */
#include "worker/cpu/winograd.h"

#include <limits.h>

/* Costs of a tile along one axis, in tenths of a product, for 6 and for 7 points; 7 points need more transforms and 13
 * more matrices. So lengths that are multiples of 4 stay with tiles of 4. */
enum { COST4 = 60, COST5 = 76 };

struct wino_axis wino_cut(int length)
{
    struct wino_axis best = { 0 };
    int least = INT_MAX;

    for (int n5 = 0; 5 * (n5 - 1) < length; n5++) {
        int rest = length - 5 * n5, n4 = rest > 0 ? (rest + 3) / 4 : 0, cost = COST4 * n4 + COST5 * n5;

        if (cost < least) {
            least = cost;
            best = (struct wino_axis){ n4 + n5, n5, n5 ? 7 : 6 };
        }
    }
    return best;
}

static long axis_products(const struct wino_axis *a)
{
    return 6L * a->tiles + a->n5;
}

long wino_cost(int h, int w)
{
    struct wino_axis y = wino_cut(h), x = wino_cut(w);

    return axis_products(&y) * axis_products(&x);
}

void wino_init(struct wino *g, int images, int h, int w, int ih, int iw, int pad, int c, int k)
{
    *g = (struct wino){ .images = images, .h = h, .w = w, .ih = ih, .iw = iw, .pad = pad, .c = c, .k = k };
    g->y = wino_cut(h);
    g->x = wino_cut(w);
    g->segs = (g->x.tiles + WINO_STRIP - 1) / WINO_STRIP;
    g->strips = images * g->y.tiles * g->segs;
    g->points = g->y.pts * g->x.pts;
    g->cv = round_up(c, 16);
    g->cz = round_up(k, 16);
    g->pv = g->cv % 32 ? 16 : 32;
    g->pz = g->cz % 64 == 0 ? 64 : g->cz % 48 == 0 ? 48 : g->cz % 32 == 0 ? 32 : 16;
}

/* The first tile of segment s in a row of tiles. */
static int seg_start(const struct wino *g, int s)
{
    return (int)((long)g->x.tiles * s / g->segs);
}

int wino_strip_tiles(const struct wino *g, int strip)
{
    int s = strip % g->segs;

    return seg_start(g, s + 1) - seg_start(g, s);
}

int wino_max_rows(const struct wino *g, int strips)
{
    return strips * ((g->x.tiles + g->segs - 1) / g->segs);
}

static int tile_start(const struct wino_axis *a, int t)
{
    return t < a->n5 ? 5 * t : 5 * a->n5 + 4 * (t - a->n5);
}

/* Outputs of tiles [from, to) of an axis of `length` outputs. */
static int covered(const struct wino_axis *a, int from, int to, int length)
{
    int end = tile_start(a, to);

    return (end < length ? end : length) - tile_start(a, from);
}

int wino_strip_pixels(const struct wino *g, int strip)
{
    int s = strip % g->segs, ty = strip / g->segs % g->y.tiles;

    return covered(&g->y, ty, ty + 1, g->h) * covered(&g->x, seg_start(g, s), seg_start(g, s + 1), g->w);
}

static void strip_tiles(const struct wino *g, int strip, struct wino_tile *tile)
{
    int s = strip % g->segs, ty = strip / g->segs % g->y.tiles, image = strip / g->segs / g->y.tiles;

    for (int t = seg_start(g, s); t < seg_start(g, s + 1); t++)
        *tile++ = (struct wino_tile){
            .image = image, .y = tile_start(&g->y, ty), .x = tile_start(&g->x, t), .my = ty < g->y.n5 ? 5 : 4, .mx = t < g->x.n5 ? 5 : 4
        };
}

void wino_block_init(const struct wino *g, struct wino_block *b, int first, int strips)
{
    int next[2][2] = { { 0 } }; /* [5 high][5 wide]: first the counts, then the next row of each kind */

    b->first = first;
    b->strips = strips;
    b->rows = 0;
    for (int s = first; s < first + strips; s++) {
        strip_tiles(g, s, b->tile + b->rows);
        b->rows += wino_strip_tiles(g, s);
    }
    for (int t = 0; t < b->rows; t++)
        next[b->tile[t].my == 5][b->tile[t].mx == 5]++;
    b->n54 = next[1][0];
    b->n55 = next[1][1];
    b->n45 = next[0][1];
    next[1][0] = 0;
    next[1][1] = b->n54;
    next[0][1] = b->n54 + b->n55;
    next[0][0] = b->n54 + b->n55 + b->n45;
    for (int t = 0; t < b->rows; t++)
        b->tile[t].row = next[b->tile[t].my == 5][b->tile[t].mx == 5]++;
}

void wino_block_range(const struct wino_block *b, int i, int j, int *ret_lo, int *ret_hi)
{
    *ret_lo = j == 6 ? b->n54 : 0;
    *ret_hi = i == 6 ? b->n54 + b->n55 : j == 6 ? b->n54 + b->n55 + b->n45 : b->rows;
}
