#include "worker/data/make/crop.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <string.h>

#include "worker/core/philox.h"
#include "worker/data/set/dataset.h"

enum { LEAST = 384, MOST = 600, SIZES = 3 };
/* The reference has no limit of the longer side. This one bounds memory, and is met by pictures 27 times as long as high. */
enum { LONGEST = 16384 };

static const int shorter[SIZES] = { 400, 500, 600 };

/* The draws of one picture, by number. */
enum { DRAW_WHETHER, DRAW_SIZE, DRAW_HEIGHT, DRAW_WIDTH, DRAW_Y, DRAW_X, DRAWS = 8 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static struct canvas scaled(int k, int h, int w)
{
    return resize_target(RESIZE_D2, h, w, shorter[k], LONGEST);
}

static struct canvas window(struct canvas picture, int side)
{
    return (struct canvas){ smaller(picture.h, side), smaller(picture.w, side) };
}

bool crop_windows(int k, int h, int w, struct canvas *ret_least, struct canvas *ret_most)
{
    if (k >= SIZES)
        return false;
    *ret_least = window(scaled(k, h, w), LEAST);
    *ret_most = window(scaled(k, h, w), MOST);
    return true;
}

bool crop_draw(float prob, uint64_t seed, int64_t epoch, int32_t image, int h, int w, bool flip, struct crop *ret)
{
    const struct philox_key key = { .seed = seed, .step = (uint32_t)epoch, .op = philox_op("data.crop") };
    const uint64_t base = (uint64_t)image * DRAWS;
    struct canvas least, most;
    int k;

    if (!(philox_uniform(&key, base + DRAW_WHETHER) < prob))
        return false;
    k = (int)philox_below(&key, base + DRAW_SIZE, SIZES);
    ret->scaled = (struct resizing){ RESIZE_D2, h, w, scaled(k, h, w), flip };
    least = window(ret->scaled.to, LEAST);
    most = window(ret->scaled.to, MOST);
    ret->window.h = least.h + (int)philox_below(&key, base + DRAW_HEIGHT, (uint32_t)(most.h - least.h + 1));
    ret->window.w = least.w + (int)philox_below(&key, base + DRAW_WIDTH, (uint32_t)(most.w - least.w + 1));
    ret->y = (int)philox_below(&key, base + DRAW_Y, (uint32_t)(ret->scaled.to.h - ret->window.h + 1));
    ret->x = (int)philox_below(&key, base + DRAW_X, (uint32_t)(ret->scaled.to.w - ret->window.w + 1));
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
