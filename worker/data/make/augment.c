#include "worker/data/make/augment.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/core/philox.h"

static const float BOX_MIN = 0.001f; /* fraction of the input's side; specs yolov3 section 5.3 */

/* The draws of one sample, by number. A new kind of augmentation takes a new number and leaves the others unchanged. */
enum {
    DRAW_WIDTH,
    DRAW_HEIGHT,
    DRAW_X,
    DRAW_Y,
    DRAW_ZOOM,
    DRAW_HUE,
    DRAW_SAT,
    DRAW_SAT_INV,
    DRAW_EXP,
    DRAW_EXP_INV,
    DRAW_FLIP,
    DRAW_VFLIP,
    DRAWS = 16
};

struct dice {
    struct philox_key key;
    uint64_t base;
};

static float uniform(const struct dice *d, int draw)
{
    return philox_uniform(&d->key, d->base + (uint64_t)draw);
}

/* Uniform in -range .. range. */
static float around_zero(const struct dice *d, int draw, float range)
{
    return range * (2.0f * uniform(d, draw) - 1.0f);
}

/* Uniform in 1 .. range; with probability one half its inverse. */
static float factor(const struct dice *d, int size, int inverse, float range)
{
    float f = 1.0f + (range - 1.0f) * uniform(d, size);

    return uniform(d, inverse) < 0.5f ? 1.0f / f : f;
}

struct placement place_letterbox(int w, int h, struct canvas canvas)
{
    struct placement p = { .w = canvas.w, .h = canvas.h, .canvas = canvas };

    if ((int64_t)w * canvas.h > (int64_t)h * canvas.w)
        p.h = (int)((int64_t)h * canvas.w / w);
    else
        p.w = (int)((int64_t)w * canvas.h / h);
    p.w = p.w < 1 ? 1 : p.w;
    p.h = p.h < 1 ? 1 : p.h;
    p.x = (canvas.w - p.w) / 2;
    p.y = (canvas.h - p.h) / 2;
    return p;
}

static int rounded_side(float v)
{
    return v < 1.0f ? 1 : (int)(v + 0.5f);
}

/* With room: any place inside. Without: any place that covers the input. */
static int offset(int room, float u)
{
    int n = room < 0 ? -room : room, k = (int)(u * (float)(n + 1));

    k = k > n ? n : k;
    return room < 0 ? -k : k;
}

/* darknet's geometry, except that the aspect is compared with that of the canvas. darknet compares it with 1, also on a
 * canvas that is no square, and so cuts off most of the picture on a flat canvas. */
static void place_geometry(struct placement *p, const struct augment *a, const struct dice *d, int w, int h)
{
    float aspect = (float)w * (1.0f + around_zero(d, DRAW_WIDTH, a->jitter)) / ((float)h * (1.0f + around_zero(d, DRAW_HEIGHT, a->jitter)));
    float zoom = 1.0f + around_zero(d, DRAW_ZOOM, a->scale), across = (float)p->canvas.w * zoom, down = (float)p->canvas.h * zoom;
    bool narrow = aspect < (float)p->canvas.w / (float)p->canvas.h;

    p->w = rounded_side(narrow ? down * aspect : across);
    p->h = rounded_side(narrow ? down : across / aspect);
    p->x = offset(p->canvas.w - p->w, uniform(d, DRAW_X));
    p->y = offset(p->canvas.h - p->h, uniform(d, DRAW_Y));
}

struct placement place_random(const struct augment *a, uint64_t seed, int64_t epoch, int32_t sample, int w, int h, struct canvas canvas)
{
    struct dice d = { { .seed = seed, .step = (uint32_t)epoch, .op = philox_op("data.augment") }, (uint64_t)sample * DRAWS };
    struct placement p = { .canvas = canvas };

    place_geometry(&p, a, &d, w, h);
    p.hue = around_zero(&d, DRAW_HUE, a->hue);
    p.saturation = factor(&d, DRAW_SAT, DRAW_SAT_INV, a->saturation);
    p.exposure = factor(&d, DRAW_EXP, DRAW_EXP_INV, a->exposure);
    p.colour = a->hue > 0.0f || a->saturation > 1.0f || a->exposure > 1.0f;
    p.flip = uniform(&d, DRAW_FLIP) < a->flip;
    p.vflip = uniform(&d, DRAW_VFLIP) < a->vflip;
    return p;
}

static double clamp01(double v)
{
    return v < 0.0 ? 0.0 : v > 1.0 ? 1.0 : v;
}

/* Ends of the span [from, from + len) of `side` source pixels, as fractions of the input. The source is drawn to `to`
 * pixels that begin at pixel `at`. */
static void place_span(double from, double len, int side, int at, int to, int size, bool mirror, double ret[2])
{
    double lo = clamp01((from * to / side + at) / size), hi = clamp01(((from + len) * to / side + at) / size);

    ret[0] = mirror ? 1.0 - hi : lo;
    ret[1] = mirror ? 1.0 - lo : hi;
}

int place_boxes(const struct placement *p, const struct dataset_box *boxes, int n, int w, int h, int32_t *cls, float (*out)[4])
{
    int kept = 0;

    for (int i = 0; i < n; i++) {
        const struct dataset_box *b = &boxes[i];
        double x[2], y[2];
        float bw, bh;

        if (b->crowd)
            continue;
        place_span(b->x, b->w, w, p->x, p->w, p->canvas.w, p->flip, x);
        place_span(b->y, b->h, h, p->y, p->h, p->canvas.h, p->vflip, y);
        bw = (float)(x[1] - x[0]);
        bh = (float)(y[1] - y[0]);
        if (!(bw >= BOX_MIN && bh >= BOX_MIN))
            continue;
        cls[kept] = b->cls;
        out[kept][0] = (float)((x[0] + x[1]) / 2);
        out[kept][1] = (float)((y[0] + y[1]) / 2);
        out[kept][2] = bw;
        out[kept][3] = bh;
        kept++;
    }
    return kept;
}

static double unplace(double v, int side, int at, int to)
{
    double u = (v - at) * side / to;

    return u < 0.0 ? 0.0 : u > side ? side : u;
}

void unplace_box(const struct placement *p, int w, int h, const float corners[4], double ret_xywh[4])
{
    double x1 = unplace(corners[0], w, p->x, p->w), y1 = unplace(corners[1], h, p->y, p->h);

    ret_xywh[0] = x1;
    ret_xywh[1] = y1;
    ret_xywh[2] = unplace(corners[2], w, p->x, p->w) - x1;
    ret_xywh[3] = unplace(corners[3], h, p->y, p->h) - y1;
}
