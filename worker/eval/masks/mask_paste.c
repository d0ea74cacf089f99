#include "worker/eval/masks/mask_paste.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/grow.h"
#include "worker/mask/rle.h"

/* A pixel reads between cells `at` and `at` + 1 of a row or column of the map. That row has a 0 in front and two
 * behind. */
struct tap {
    int at;
    float weight; /* weight of cell at + 1 */
};

/* Pixels from .. to - 1 of an axis of the picture that the map may reach, and the mapping to its cells. */
struct axis {
    int from, to;
    enum mask_paste how;
    double begin, scale; /* HALF_PIXEL: start of the box; cells per pixel */
    int first;           /* RESIZE: first pixel of the grown box; cells per pixel */
    float step;
};

struct mask_paster {
    int w, h;
    struct tap *taps;          /* [w] at most, the columns of one mask */
    struct result_mask *masks; /* [n]; mask_paste_masks() sets their bits, which lie in one array */
    uint8_t *bits;
    int n;
    size_t used, masks_room, taps_room, bits_room;
};

struct mask_paster *mask_paster_new(void)
{
    return calloc(1, sizeof(struct mask_paster));
}

void mask_paster_free(struct mask_paster *p)
{
    if (!p)
        return;
    free(p->taps);
    free(p->masks);
    free(p->bits);
    free(p);
}

void mask_paste_begin(struct mask_paster *p, int w, int h)
{
    assert(w > 0 && h > 0 && w <= RLE_MAX_SIDE && h <= RLE_MAX_SIDE);
    p->w = w;
    p->h = h;
    p->n = 0;
    p->used = 0;
}

static bool make_room(struct mask_paster *p, int columns, size_t bytes)
{
    return GROW(p->masks, p->masks_room, p->n + 1) && GROW(p->taps, p->taps_room, columns + 1) &&
           GROW(p->bits, p->bits_room, p->used + bytes + 1);
}

static int clamped(double v, int most)
{
    return (int)(v > 0 ? v < most ? v : most : 0);
}

static struct axis half_pixel_axis(float lo, float hi, int side, int pixels)
{
    double cell = ((double)hi - lo) / side;
    struct axis a = { .how = MASK_PASTE_HALF_PIXEL, .begin = lo, .scale = 1 / cell };

    a.from = clamped(floor(lo - cell / 2 - 1), pixels); /* half a cell around the box, and a pixel for rounding */
    a.to = clamped(ceil(hi + cell / 2 + 1), pixels);
    return a;
}

/* Computes in fp32 as the reference does: its roundings decide on whole pixels. */
static struct axis resize_axis(float lo, float hi, int side, int pixels)
{
    float middle = (hi + lo) * 0.5f, half = (hi - lo) * 0.5f * (float)((side + 2.0) / side);
    double first = trunc((double)(middle - half)), last = trunc((double)(middle + half)), n = last - first + 1;
    struct axis a = { .how = MASK_PASTE_RESIZE };

    if (!(fabs(first) < RLE_MAX_SIDE * 1024.0) || !(fabs(last) < RLE_MAX_SIDE * 1024.0))
        return a;
    n = n > 1 ? n : 1;
    a.first = (int)first;
    a.step = (float)(side + 2) / (float)n;
    a.from = clamped(first, pixels);
    a.to = clamped(last + 1, pixels);
    return a;
}

static struct axis axis_of(enum mask_paste how, float lo, float hi, int side, int pixels)
{
    return how == MASK_PASTE_RESIZE ? resize_axis(lo, hi, side, pixels) : half_pixel_axis(lo, hi, side, pixels);
}

static struct tap tap_of(const struct axis *a, int side, int pixel)
{
    struct tap t;

    if (a->how == MASK_PASTE_RESIZE) {
        float at = a->step * ((float)(pixel - a->first) + 0.5f) - 0.5f;

        at = at > 0 ? at : 0;
        t.at = (int)at < side + 1 ? (int)at : side + 1;
        t.weight = at - (float)t.at;
    } else {
        double at = (pixel + 0.5 - a->begin) * a->scale + 0.5; /* in cells, with those of the rim */

        if (!(at > 0) || at >= side + 1)
            return (struct tap){ side + 1, 0 }; /* on the rim */
        t.at = (int)at;
        t.weight = (float)(at - t.at);
    }
    return t;
}

/* One row of the picture, mixed from the two nearest rows of the map. row is [side + 3]. */
static void mix_rows(const float *map, int side, struct tap t, float *row)
{
    const float *above = t.at > 0 && t.at <= side ? map + (size_t)(t.at - 1) * (size_t)side : NULL;
    const float *below = t.at < side ? map + (size_t)t.at * (size_t)side : NULL;

    row[0] = row[side + 1] = row[side + 2] = 0;
    for (int i = 0; i < side; i++)
        row[i + 1] = (above ? above[i] : 0) * (1 - t.weight) + (below ? below[i] : 0) * t.weight;
}

static void put_row(const struct tap *taps, int n, const float *row, enum mask_paste how, uint8_t *bits)
{
    unsigned byte = 0;

    for (int x = 0; x < n; x++) {
        float v = row[taps[x].at] * (1 - taps[x].weight) + row[taps[x].at + 1] * taps[x].weight;

        byte = byte << 1 | (how == MASK_PASTE_RESIZE ? v > 0.5f : v >= 0.5f);
        if (x % 8 == 7)
            *bits++ = (uint8_t)byte;
    }
    if (n % 8)
        *bits = (uint8_t)(byte << (8 - n % 8));
}

static void paste(const struct mask_paster *p, const float *map, int side, const struct axis *x, const struct axis *y, uint8_t *bits)
{
    size_t stride = (size_t)(x->to - x->from + 7) / 8;
    float row[MASK_PASTE_MAX_SIDE + 3];

    for (int i = x->from; i < x->to; i++)
        p->taps[i - x->from] = tap_of(x, side, i);
    for (int i = y->from; i < y->to; i++) {
        mix_rows(map, side, tap_of(y, side, i), row);
        put_row(p->taps, x->to - x->from, row, x->how, bits);
        bits += stride;
    }
}

static size_t mask_bytes(const struct result_mask *m)
{
    return (size_t)(m->w + 7) / 8 * (size_t)m->h;
}

int mask_paste(struct mask_paster *p, enum mask_paste how, const float *map, int side, const float box[4], struct err *err)
{
    bool sound = isfinite(box[0]) && isfinite(box[1]) && isfinite(box[2]) && isfinite(box[3]) && box[2] > box[0] && box[3] > box[1];
    struct axis x = { 0 }, y = { 0 };
    struct result_mask mask;
    size_t bytes;

    assert(side > 0 && side <= MASK_PASTE_MAX_SIDE);
    if (sound) {
        x = axis_of(how, box[0], box[2], side, p->w);
        y = axis_of(how, box[1], box[3], side, p->h);
    }
    if (x.from >= x.to || y.from >= y.to)
        x = y = (struct axis){ 0 };
    mask = (struct result_mask){ x.from, y.from, x.to - x.from, y.to - y.from, NULL };
    bytes = mask_bytes(&mask);
    if (!make_room(p, x.to - x.from, bytes))
        return err_set(err, -ENOMEM, "masks: out of memory");
    if (bytes > 0)
        paste(p, map, side, &x, &y, p->bits + p->used);
    p->masks[p->n++] = mask;
    p->used += bytes;
    return 0;
}

const struct result_mask *mask_paste_masks(struct mask_paster *p, int *ret_n)
{
    const uint8_t *at = p->bits;

    for (int i = 0; i < p->n; i++) {
        p->masks[i].bits = at;
        at += mask_bytes(&p->masks[i]);
    }
    *ret_n = p->n;
    return p->masks;
}
