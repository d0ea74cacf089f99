/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/core worker/mask worker/data
 * tests/unit/worker/data/make/test_augment.c - Placement by hand, rendering against the formulas written down once more
 * in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/stand/harness.h"
#include "worker/data/make/augment.h"

/* Computed by hand: a picture is limited by the side that has less room relative to its aspect. */
static void letterboxes_of_rectangles(void **state)
{
    static const struct {
        int w, h;
        struct canvas canvas;
        int x, y, to_w, to_h;
    } rows[] = {
        { 640, 480, { 320, 608 }, 91, 0, 426, 320 },  /* as high as the canvas, though wider than high */
        { 640, 480, { 608, 320 }, 0, 184, 320, 240 }, /* a canvas that stands */
        { 1280, 320, { 320, 608 }, 0, 84, 608, 152 }, /* flatter than the canvas */
        { 608, 320, { 320, 608 }, 0, 0, 608, 320 },   /* fits */
        { 304, 160, { 320, 608 }, 0, 0, 608, 320 },   { 100, 1, { 32, 64 }, 0, 15, 64, 1 }, /* never less than a pixel */
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct placement p = place_letterbox(rows[i].w, rows[i].h, rows[i].canvas);
        const struct dataset_box box = { .x = 10, .y = 0, .w = 30, .h = rows[i].h };
        float got[1][4], corners[4];
        double back[4];
        int32_t cls;

        assert_true(p.x == rows[i].x && p.y == rows[i].y && p.w == rows[i].to_w && p.h == rows[i].to_h);
        assert_int_equal(place_boxes(&p, &box, 1, rows[i].w, rows[i].h, &cls, got), 1);
        for (int k = 0; k < 4; k++)
            corners[k] = (float)(k & 1 ? p.canvas.h : p.canvas.w) * (got[0][k & 1] + (k < 2 ? -0.5f : 0.5f) * got[0][2 + (k & 1)]);
        unplace_box(&p, rows[i].w, rows[i].h, corners, back);
        assert_true(fabs(back[0] - 10) < 1e-3 && fabs(back[1]) < 1e-3 && fabs(back[2] - 30) < 1e-3 && fabs(back[3] - rows[i].h) < 1e-3);
    }
}

/* Without jitter a picture fits a canvas of any form, and lies anywhere in it. Zoomed, it reaches over the canvas. */
static void draws_follow_the_canvas(void **state)
{
    static const struct canvas canvases[] = { { 320, 608 }, { 608, 320 }, { 416, 416 } };
    struct augment a = { .saturation = 1, .exposure = 1 }, zoom = { .scale = .5f, .saturation = 1, .exposure = 1 };

    (void)state;
    for (int32_t s = 0; s < 60; s++) {
        struct canvas c = canvases[s % 3];
        struct placement p = place_random(&a, 5, 3, s, 640, 480, c), box = place_letterbox(640, 480, c);
        struct placement z = place_random(&zoom, 5, 3, s, 640, 480, c);

        assert_true(abs(p.w - box.w) <= 1 && abs(p.h - box.h) <= 1 && canvas_equal(p.canvas, c));
        assert_true(p.x >= 0 && p.x + p.w <= c.w && p.y >= 0 && p.y + p.h <= c.h);
        assert_true(z.x >= 0 ? z.x + z.w <= c.w : z.x + z.w >= c.w);
        assert_true(z.y >= 0 ? z.y + z.h <= c.h : z.y + z.h >= c.h);
        assert_true(fabs((double)z.w / z.h - 640.0 / 480) < .02);
    }
}

/* ---- rendering, once more ---- */

static double sampled(const uint8_t *rgb, int w, int h, double x, double y, int c)
{
    int x0, y0, x1, y1;

    x = fmin(fmax(x, 0), w - 1);
    y = fmin(fmax(y, 0), h - 1);
    x0 = (int)x;
    y0 = (int)y;
    x1 = x0 + 1 < w ? x0 + 1 : x0;
    y1 = y0 + 1 < h ? y0 + 1 : y0;
#define AT(xx, yy) (double)rgb[((yy)*w + (xx)) * 3 + c]
    return ((AT(x0, y0) * (1 - (x - x0)) + AT(x1, y0) * (x - x0)) * (1 - (y - y0)) +
            (AT(x0, y1) * (1 - (x - x0)) + AT(x1, y1) * (x - x0)) * (y - y0)) /
           255;
#undef AT
}

/* RGB -> HSV -> RGB as in specs yolov3 section 5.4, the textbook way. */
static void distort(double v[3], const struct placement *p)
{
    double top = fmax(v[0], fmax(v[1], v[2])), low = fmin(v[0], fmin(v[1], v[2])), range = top - low, hue = 0, s, f, q[4];
    int sextant;

    if (range > 0)
        hue = v[0] == top ? (v[1] - v[2]) / range : v[1] == top ? 2 + (v[2] - v[0]) / range : 4 + (v[0] - v[1]) / range;
    hue = hue < 0 ? hue + 6 : hue;
    hue += 6 * (double)p->hue;
    hue = hue < 0 ? hue + 6 : hue >= 6 ? hue - 6 : hue;
    s = (top > 0 ? range / top : 0) * (double)p->saturation;
    top *= (double)p->exposure;
    sextant = (int)hue;
    f = hue - sextant;
    q[0] = top;
    q[1] = top * (1 - s);
    q[2] = top * (1 - s * f);
    q[3] = top * (1 - s * (1 - f));
    static const int pick[6][3] = { { 0, 3, 1 }, { 2, 0, 1 }, { 1, 0, 3 }, { 1, 2, 0 }, { 3, 1, 0 }, { 0, 1, 2 } };
    for (int c = 0; c < 3; c++)
        v[c] = fmin(fmax(q[pick[sextant % 6][c]], 0), 1);
}

static double largest_difference(const struct placement *p, const uint8_t *rgb, int w, int h, const float *got)
{
    double worst = 0;

    for (int y = 0; y < p->canvas.h; y++)
        for (int x = 0; x < p->canvas.w; x++) {
            int sx = (p->flip ? p->canvas.w - 1 - x : x) - p->x, sy = (p->vflip ? p->canvas.h - 1 - y : y) - p->y;
            double v[3] = { .5, .5, .5 };

            for (int c = 0; c < 3 && sx >= 0 && sx < p->w && sy >= 0 && sy < p->h; c++)
                v[c] = sampled(rgb, w, h, (sx + .5) * w / p->w - .5, (sy + .5) * h / p->h - .5, c);
            if (p->colour)
                distort(v, p);
            for (int c = 0; c < 3; c++)
                worst = fmax(worst, fabs(v[c] - (double)got[(y * p->canvas.w + x) * 3 + c]));
        }
    return worst;
}

static void check_render(const struct placement *p, int w, int h)
{
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    size_t n = (size_t)p->canvas.h * (size_t)p->canvas.w * 3;
    float *out = malloc((n + 1) * sizeof *out), *other = malloc((n + 1) * sizeof *other),
          *scratch = malloc(render_scratch(w, p->canvas) * sizeof *scratch);

    for (int i = 0; i < w * h * 3; i++)
        rgb[i] = (uint8_t)((unsigned)i * 2654435761u >> 13);
    out[n] = other[n] = 42.0f;
    render(p, rgb, w, h, out, scratch);
    assert_true(largest_difference(p, rgb, w, h, out) < 2e-5);
    assert_true(out[n] == 42.0f);
    for (int build = 0; build < render_builds(); build++) {
        memset(other, 0, n * sizeof *other);
        render_by(build, p, rgb, w, h, other, scratch);
        assert_memory_equal(out, other, (n + 1) * sizeof *out);
    }
    free(other);
    free(rgb);
    free(out);
    free(scratch);
}

static void pixels_follow_the_formulas(void **state)
{
    static const int sizes[5][2] = { { 64, 48 }, { 1, 1 }, { 17, 90 }, { 33, 3 }, { 200, 150 } };
    static const struct canvas canvases[3] = { { 48, 48 }, { 24, 70 }, { 55, 31 } };
    struct augment a = { .flip = .5f, .vflip = .5f, .jitter = .3f, .scale = .5f, .hue = .1f, .saturation = 1.5f, .exposure = 1.5f };
    struct placement p;

    (void)state;
    for (int i = 0; i < 5; i++) {
        p = place_letterbox(sizes[i][0], sizes[i][1], (struct canvas){ 37, 37 });
        check_render(&p, sizes[i][0], sizes[i][1]);
        p = place_letterbox(sizes[i][0], sizes[i][1], (struct canvas){ 21, 50 });
        check_render(&p, sizes[i][0], sizes[i][1]);
        for (int32_t s = 0; s < 20; s++) {
            p = place_random(&a, 1, s % 3, s, sizes[i][0], sizes[i][1], canvases[s % 3]);
            if (s % 4 == 0)
                p.hue = 0;
            check_render(&p, sizes[i][0], sizes[i][1]);
        }
    }
    p = (struct placement){ .x = -30, .y = 5, .w = 20, .h = 400, .canvas = { 40, 40 }, .colour = true, .saturation = 1, .exposure = 1 };
    check_render(&p, 20, 20);
}

/* ---- draws and boxes ---- */

/* Padding aside. */
static void assert_same_placement(const struct placement *a, const struct placement *b)
{
    assert_true(a->x == b->x && a->y == b->y && a->w == b->w && a->h == b->h && a->canvas.w == b->canvas.w && a->canvas.h == b->canvas.h);
    assert_true(a->flip == b->flip && a->vflip == b->vflip && a->colour == b->colour);
    assert_true(a->hue == b->hue && a->saturation == b->saturation && a->exposure == b->exposure);
}

static const struct canvas square = { 416, 416 };

static void draws_keep_their_ranges(void **state)
{
    struct augment a = { .flip = .5f, .jitter = .2f, .scale = .2f, .hue = .1f, .saturation = 2, .exposure = 1.5f };
    int flips = 0, inverted = 0;

    (void)state;
    for (int32_t s = 0; s < 2000; s++) {
        struct placement p = place_random(&a, 5, 3, s, 640, 480, square), again = place_random(&a, 5, 3, s, 640, 480, square);

        assert_same_placement(&p, &again);
        assert_true(p.w >= 1 && p.h >= 1 && p.w <= 500 && p.h <= 500);
        assert_true(p.w <= 416 ? p.x >= 0 && p.x + p.w <= 416 : p.x <= 0 && p.x + p.w >= 416);
        assert_true(p.y <= 0 || p.y + p.h <= 416);
        assert_true(fabsf(p.hue) <= .1f && p.saturation >= .5f && p.saturation <= 2 && p.exposure >= 1 / 1.5f && p.exposure <= 1.5f);
        assert_false(p.vflip);
        flips += p.flip;
        inverted += p.saturation < 1;
    }
    assert_in_range(flips, 900, 1100);
    assert_in_range(inverted, 900, 1100);
    struct augment none = { .saturation = 1, .exposure = 1 };
    struct placement p = place_random(&none, 5, 3, 0, 640, 480, square);
    assert_true(p.w == 416 && p.h == 312 && !p.colour && !p.flip);
}

/* Every part of the key counts, in each of its bits that is used. */
static void epoch_sample_and_seed_draw_anew(void **state)
{
    struct augment a = { .flip = .5f, .jitter = .2f, .scale = .2f, .hue = .1f, .saturation = 2, .exposure = 1.5f };

    (void)state;
    for (int32_t s = 0; s < 100; s++) {
        struct placement p = place_random(&a, 5, 0, s, 640, 480, square);
        struct placement others[] = { place_random(&a, 5, 1, s, 640, 480, square), place_random(&a, 5, 256, s, 640, 480, square),
                                      place_random(&a, 5, 0, s + 1, 640, 480, square), place_random(&a, 6, 0, s, 640, 480, square),
                                      place_random(&a, 5 + (1ull << 40), 0, s, 640, 480, square) };

        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            assert_true(p.hue != others[i].hue && p.saturation != others[i].saturation && p.exposure != others[i].exposure);
    }
}

static void boxes_move_with_their_pixels(void **state)
{
    struct dataset_box boxes[] = {
        { .x = 0, .y = 0, .w = 100, .h = 50, .cls = 1 },                 /* whole picture */
        { .x = 10, .y = 10, .w = 20, .h = 10, .cls = 2, .crowd = true }, /* never trained on */
        { .x = 0, .y = 0, .w = 50, .h = 50, .cls = 3 },                  /* left half */
        { .x = 99.99, .y = 0, .w = .01, .h = 50, .cls = 4 },             /* too thin to keep */
    };
    struct placement p = { .x = -20, .y = 20, .w = 200, .h = 60, .canvas = { 100, 100 }, .flip = true, .vflip = true };
    int32_t cls[4];
    float out[4][4];

    (void)state;
    assert_int_equal(place_boxes(&p, boxes, 4, 100, 50, cls, out), 2);
    assert_true(cls[0] == 1 && cls[1] == 3);
    assert_float_equal(out[0][0], .5, 1e-6); /* cut to 0 .. 1 */
    assert_float_equal(out[0][1], .5, 1e-6);
    assert_float_equal(out[0][2], 1, 1e-6);
    assert_float_equal(out[0][3], .6, 1e-6);
    assert_float_equal(out[1][0], .6, 1e-6); /* 0 .. .8, mirrored */
    assert_float_equal(out[1][2], .8, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_follow_the_formulas),      cmocka_unit_test(draws_keep_their_ranges),
        cmocka_unit_test(epoch_sample_and_seed_draw_anew), cmocka_unit_test(boxes_move_with_their_pixels),
        cmocka_unit_test(letterboxes_of_rectangles),       cmocka_unit_test(draws_follow_the_canvas),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
