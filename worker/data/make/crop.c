#include "worker/data/make/crop.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <limits.h>
#include <math.h>
#include <string.h>

#include "worker/core/philox.h"
#include "worker/data/set/dataset.h"

enum { SIZES = 3, LONGEST = 16384 };

/* The draws of one picture, by number. */
enum { DRAW_WHETHER, DRAW_SIZE, DRAW_HEIGHT, DRAW_WIDTH, DRAW_Y, DRAW_X, DRAWS = 8 };

struct dice {
    struct philox_key key;
    uint64_t base;
};

/* Whole numbers from `from` to `to`. */
static int among(const struct dice *d, int draw, int from, int to)
{
    return from + (int)philox_below(&d->key, d->base + (uint64_t)draw, (uint32_t)(to - from + 1));
}

/* A side of a window in `side` pixels. */
static int window_side(const struct dice *d, int draw, int side)
{
    return among(d, draw, side < CROP_LEAST ? side : CROP_LEAST, side < CROP_MOST ? side : CROP_MOST);
}

bool crop_draw(float prob, uint64_t seed, int64_t epoch, int32_t image, int h, int w, bool flip, struct crop *ret)
{
    static const int shorter[SIZES] = { 400, 500, 600 };
    const struct dice d = { { .seed = seed, .step = (uint32_t)epoch, .op = philox_op("data.crop") }, (uint64_t)image * DRAWS };
    struct canvas c;

    if (!(philox_uniform(&d.key, d.base + DRAW_WHETHER) < prob))
        return false;
    c = resize_target(RESIZE_D2, h, w, shorter[among(&d, DRAW_SIZE, 0, SIZES - 1)], INT_MAX);
    if (c.h > LONGEST || c.w > LONGEST)
        return false;
    ret->scaled = (struct resizing){ RESIZE_D2, h, w, c, flip };
    ret->window = (struct canvas){ window_side(&d, DRAW_HEIGHT, c.h), window_side(&d, DRAW_WIDTH, c.w) };
    ret->y = among(&d, DRAW_Y, 0, c.h - ret->window.h);
    ret->x = among(&d, DRAW_X, 0, c.w - ret->window.w);
    return true;
}

size_t crop_bytes(const struct crop *c)
{
    return (size_t)c->scaled.to.h * (size_t)c->scaled.to.w * 3;
}

void crop_cut(const struct crop *c, uint8_t *rgb)
{
    const size_t row = (size_t)c->window.w * 3, pitch = (size_t)c->scaled.to.w * 3;
    const uint8_t *from = rgb + (size_t)c->y * pitch + (size_t)c->x * 3;

    for (int y = 0; y < c->window.h; y++)
        memmove(rgb + (size_t)y * row, from + (size_t)y * pitch, row);
}

/* from .. from + len of `side` pixels, drawn to `to` pixels, as part of a window of `window` pixels at pixel `at`. */
static void cut_span(double from, double len, int side, int to, bool flip, int at, int window, double ret[2])
{
    const double scale = (double)to / side, lo = from * scale, hi = (from + len) * scale;

    ret[0] = fmax((flip ? to - hi : lo) - at, 0);
    ret[1] = fmin((flip ? to - lo : hi) - at, window);
}

bool crop_box(const struct crop *c, const struct dataset_box *b, struct dataset_box *ret)
{
    const struct resizing *z = &c->scaled;
    double x[2], y[2];

    cut_span(b->x, b->w, z->w, z->to.w, z->flip, c->x, c->window.w, x);
    cut_span(b->y, b->h, z->h, z->to.h, false, c->y, c->window.h, y);
    *ret = *b;
    ret->x = x[0];
    ret->y = y[0];
    ret->w = x[1] - x[0];
    ret->h = y[1] - y[0];
    return ret->w > 1e-5 && ret->h > 1e-5;
}
