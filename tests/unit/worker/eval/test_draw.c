/* SPDX-License-Identifier: Apache-2.0 */ /* Boxes and labels on pictures.
 * uses: proto worker/eval worker/mask worker/core */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/draw.h"
#include "worker/eval/font.h"

static const char *const names[] = { "cell", "na\xc3\xafve \xe6\xbc\xa2" };

/* Exactly as many bytes as the picture has, so that a sanitizer sees every stray write. */
static struct picture blank(int w, int h)
{
    struct picture p = { malloc((size_t)w * (size_t)h * 3), w, h };

    assert_non_null(p.rgb);
    memset(p.rgb, 60, (size_t)w * (size_t)h * 3);
    return p;
}

static const uint8_t *at(const struct picture *p, int x, int y)
{
    return p->rgb + ((size_t)y * (size_t)p->w + (size_t)x) * 3;
}

static void draw(struct picture *p, const struct detection *d, size_t n)
{
    struct err err;

    assert_int_equal(draw_detections(p, d, n, names, 2, &err), 0);
}

static void a_frame_lies_on_its_box(void **state)
{
    struct picture p = blank(200, 100);
    struct detection d = { .score = .5, .box = { 50, 40, 60, 30 } };
    uint8_t color[3];

    (void)state;
    draw_class_color(0, color);
    draw(&p, &d, 1);
    assert_memory_equal(at(&p, 50, 40), color, 3);
    assert_memory_equal(at(&p, 109, 69), color, 3);
    assert_memory_equal(at(&p, 109, 41), color, 3);
    assert_memory_equal(at(&p, 50, 69), color, 3);
    assert_true(at(&p, 80, 55)[0] == 60); /* inside stays */
    assert_true(at(&p, 110, 70)[0] < 60); /* dark rim */
    assert_true(at(&p, 112, 72)[0] == 60);
    assert_true(memcmp(at(&p, 51, 36), at(&p, 180, 5), 3) != 0); /* the label stands above */
    free(p.rgb);
}

/* The label moves if there is no room above, or if a small object lies there. */
static void labels_leave_small_objects_alone(void **state)
{
    struct picture p = blank(200, 100), q = blank(200, 100);
    struct detection top = { .score = .5, .box = { 50, 2, 20, 14 } };
    struct detection two[2] = { { .score = .9, .box = { 50, 40, 60, 50 } }, { .cls = 1, .score = .5, .box = { 60, 22, 16, 14 } } };

    (void)state;
    draw(&p, &top, 1);
    assert_true(at(&p, 60, 9)[0] == 60);
    draw(&q, two, 2);
    assert_true(at(&q, 68, 29)[0] == 60);
    free(p.rgb);
    free(q.rgb);
}

/* Half of the colour inside, nearly all of it at the edge, no colour beside the mask. The best mask lies on top; pixels
 * outside the picture are clipped. */
static void masks_cover_their_pixels(void **state)
{
    static const uint8_t block[3] = { 0xe0, 0xe0, 0xe0 }, row[2] = { 0xff, 0xff };
    const struct result_mask masks[2] = { { 5, 4, 3, 3, block }, { 0, 5, 10, 1, row } };
    const struct result_mask outside[3] = { { 9, 7, 3, 3, block }, { 300, 2, 3, 3, block }, { 0, 0, 0, 0, NULL } };
    struct picture p = blank(10 * 4, 8 * 4);
    uint8_t color[2][3];

    (void)state;
    draw_class_color(0, color[0]);
    draw_class_color(1, color[1]);
    draw_masks(&p, masks, 2, 4);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(at(&p, 26, 18)[k], (60 * 145 + color[0][k] * 110 + 127) / 255); /* row 4: the block alone, within */
        assert_int_equal(at(&p, 20, 18)[k], (60 * 25 + color[0][k] * 230 + 127) / 255);  /* its left border */
        assert_int_equal(at(&p, 10, 22)[k], (60 * 145 + color[1][k] * 110 + 127) / 255); /* row 5 beside the block */
        assert_int_equal(at(&p, 10, 20)[k], (60 * 25 + color[1][k] * 230 + 127) / 255);  /* the row's upper border */
        assert_int_equal(at(&p, 26, 22)[k], ((60 * 145 + color[1][k] * 110 + 127) / 255 * 145 + color[0][k] * 110 + 127) / 255); /* both */
        assert_int_equal(at(&p, 19, 18)[k], 60);
        assert_int_equal(at(&p, 33, 18)[k], 60);
        assert_int_equal(at(&p, 26, 29)[k], 60);
    }
    draw_masks(&p, outside, 3, 4);
    for (int k = 0; k < 3; k++)
        assert_int_equal(at(&p, 38, 30)[k], (60 * 145 + color[0][k] * 110 + 127) / 255);
    free(p.rgb);
}

enum { GUARD = 4096 };

/* Draws a single box on a blank picture; the memory before and behind the picture must stay unchanged. Returns whether
 * anything was drawn. */
static bool draws(int w, int h, const double box[4], double score, int cls)
{
    size_t size = (size_t)w * (size_t)h * 3;
    uint8_t *memory = malloc(size + 2 * GUARD);
    struct picture p = { memory + GUARD, w, h };
    struct detection d = { .cls = cls, .score = score };
    bool drawn = false;

    memset(memory, 60, size + 2 * GUARD);
    memcpy(d.box, box, sizeof d.box);
    draw(&p, &d, 1);
    for (size_t i = 0; i < GUARD; i++)
        assert_true(memory[i] == 60 && memory[GUARD + size + i] == 60);
    for (size_t i = 0; i < size; i++)
        drawn |= p.rgb[i] != 60;
    free(memory);
    return drawn;
}

static void anything_is_clipped(void **state)
{
    static const struct {
        double box[4], score;
        int seen[3]; /* in 20 x 10, 20 x 1 and 1 x 1 pixels */
    } rows[] = {
        { { -50, -50, 500, 500 }, .3, { 0, 0, 0 } }, /* all around the picture, its label too */
        { { -1e300, -1e300, 1e308, 1e308 }, .5, { 0, 0, 0 } },
        { { 19, 9, 0, 0 }, .5, { 1, 1, 1 } },
        { { 1e9, 1e9, 5, 5 }, .5, { 0, 0, 0 } },
        { { -30, 4, 10, 3 }, .5, { 1, 1, 1 } }, /* to the left: only its label */
        { { 3, 3, 1, 1 }, 1.5, { 1, 1, 1 } },
        { { 0, 0, 20, 10 }, -1, { 1, 1, 1 } },
        { { NAN, 0, 5, 5 }, .5, { 0, 0, 0 } },
        { { 5, 5, -3, 2 }, .5, { 0, 0, 0 } },
        { { 0, 0, INFINITY, 1 }, .5, { 0, 0, 0 } },
        { { 0, 0, 5, 5 }, NAN, { 0, 0, 0 } },
    };
    static const int sides[3][2] = { { 20, 10 }, { 20, 1 }, { 1, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 3; k++)
            for (int cls = -1; cls < 9000; cls += 4000)
                if (draws(sides[k][0], sides[k][1], rows[i].box, rows[i].score, cls) != rows[i].seen[k])
                    fail_msg("row %zu in %d x %d: %d", i, sides[k][0], sides[k][1], !rows[i].seen[k]);
}

/* The part inside is that of the whole frame. */
static void a_frame_that_overhangs_is_cut(void **state)
{
    struct picture p = blank(200, 100);
    struct detection d = { .score = .5, .box = { -20, 40, 60, 90 } };
    uint8_t color[3];

    (void)state;
    draw_class_color(0, color);
    draw(&p, &d, 1);
    assert_memory_equal(at(&p, 39, 99), color, 3); /* right edge, down to the last row */
    assert_memory_equal(at(&p, 30, 40), color, 3); /* top edge */
    assert_true(at(&p, 0, 70)[0] == 60 && at(&p, 20, 99)[0] == 60);
    free(p.rgb);
    p = blank(200, 100);
    memcpy(d.box, (double[]){ 39, 10, 1e300, 1e300 }, sizeof d.box); /* more pixels than an int counts */
    draw(&p, &d, 1);
    assert_memory_equal(at(&p, 39, 99), color, 3);
    assert_memory_equal(at(&p, 199, 10), color, 3);
    free(p.rgb);
}

static void the_best_is_on_top_and_scores_are_from_nought_to_one(void **state)
{
    struct detection d[2] = { { .cls = 1, .score = .9, .box = { 20, 30, 50, 50 } }, { .score = .5, .box = { 20, 30, 50, 50 } } };
    struct picture p = blank(120, 90), q = blank(120, 90);
    uint8_t color[3];

    (void)state;
    draw_class_color(1, color);
    draw(&p, d, 2);
    assert_memory_equal(at(&p, 20, 60), color, 3);
    draw(&q, d, 2);
    d[0].score = 0;
    draw(&p, d, 1);
    d[0].score = -7;
    draw(&q, d, 1);
    assert_memory_equal(p.rgb, q.rgb, 120 * 90 * 3);
    d[0].score = 2; /* as of ground truth: no score is written */
    draw(&p, d, 1);
    d[0].score = 7;
    draw(&q, d, 1);
    assert_memory_equal(p.rgb, q.rgb, 120 * 90 * 3);
    d[0].score = 1;
    draw(&q, d, 1);
    assert_memory_not_equal(p.rgb, q.rgb, 120 * 90 * 3);
    free(p.rgb);
    free(q.rgb);
}

static size_t count_pixels(const struct picture *p, uint8_t grey)
{
    size_t n = 0;

    for (int i = 0; i < p->w * p->h; i++)
        n += p->rgb[3 * i] == grey && p->rgb[3 * i + 1] == grey && p->rgb[3 * i + 2] == grey;
    return n;
}

/* Black letters on bright colours, white ones on dark. */
static void letters_stand_out(void **state)
{
    int bright = 0, dark = 0;

    (void)state;
    for (int cls = 0; cls < 60; cls++) {
        struct picture p = blank(200, 100);
        struct detection d = { .cls = cls, .score = .5, .box = { 50, 40, 60, 30 } };
        uint8_t c[3];
        double light;

        draw_class_color(cls, c);
        light = .299 * c[0] + .587 * c[1] + .114 * c[2];
        draw(&p, &d, 1);
        assert_true(count_pixels(&p, light > 130 ? 0 : 255) > 0 && count_pixels(&p, light > 130 ? 255 : 0) == 0);
        bright += light > 130 && light < 200;
        dark += light < 130;
        free(p.rgb);
    }
    assert_true(bright > 5 && dark > 5);
}

/* The rim of a label is plain on all sides: no letter comes before the first, after the last, or is cut. */
static void letters_leave_a_rim(void **state)
{
    enum { SIDE = 1200, TOP = 600, RIM = SIDE / 200 };
    struct picture p = blank(SIDE, SIDE);
    struct detection d = { .score = .5, .box = { 500, TOP, 400, 300 } };
    int x0 = SIDE, x1 = 0, y0 = TOP, y1 = 0; /* of the label, which stands above the frame */

    (void)state;
    draw(&p, &d, 1);
    for (int y = 0; y < TOP - 8; y++)
        for (int x = 0; x < SIDE; x++)
            if (at(&p, x, y)[0] != 60) {
                x0 = x < x0 ? x : x0;
                x1 = x >= x1 ? x + 1 : x1;
                y0 = y < y0 ? y : y0;
                y1 = y + 1;
            }
    assert_true(x1 - x0 > 100 && y1 - y0 > 30);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            if (y < y0 + RIM || x < x0 + RIM || x >= x1 - RIM)
                assert_memory_equal(at(&p, x, y), at(&p, x0, y0), 3);
    free(p.rgb);
}

static void order_given_does_not_show(void **state)
{
    struct detection d[3] = { { .score = .5, .box = { 10, 20, 50, 50 } },
                              { .cls = 1, .score = .9, .box = { 20, 20, 50, 50 } },
                              { .cls = 2, .score = .9, .box = { 15, 25, 50, 50 } } };
    struct detection other[3] = { d[2], d[0], d[1] };
    struct picture a = blank(120, 90), b = blank(120, 90);

    (void)state;
    draw(&a, d, 3);
    draw(&b, other, 3);
    assert_memory_equal(a.rgb, b.rgb, 120 * 90 * 3);
    free(a.rgb);
    free(b.rgb);
}

static void letters_come_from_utf8(void **state)
{
    char text[16];

    (void)state;
    assert_int_equal(font_letters(names[1], text, sizeof text), 7);
    assert_string_equal(text, "na?ve ?");
    assert_int_equal(font_letters("abcdef", text, 4), 3);
    assert_string_equal(text, "abc");
}

static void letters_have_their_shape_at_any_scale(void **state)
{
    (void)state;
    assert_int_equal(font_coverage('T', 0.5, 0.5, 1), 255); /* left end of the bar */
    assert_int_equal(font_coverage('T', 0.5, 3.5, 1), 0);
    assert_int_equal(font_coverage('T', 2.5, 3.5, 7.3), 255); /* stem */
    assert_int_equal(font_coverage('T', -1, 3, 2), 0);
    assert_int_equal(font_coverage('T', 50, 300, 2), 0);
    assert_int_equal(font_coverage(0x80, 2.5, 2.5, 1), font_coverage('?', 2.5, 2.5, 1));
    for (unsigned c = '!'; c <= '~'; c++) {
        unsigned ink = 0;

        for (int y = 0; y < FONT_H; y++)
            for (int x = 0; x < FONT_W; x++)
                ink += font_coverage((unsigned char)c, x + .5, y + .5, 1) == 255;
        assert_true(ink >= 2);
    }
}

static void colors_of_neighbours_differ(void **state)
{
    (void)state;
    for (int i = 0; i < 80; i++) {
        uint8_t a[3], b[3];
        int distance = 0;

        draw_class_color(i, a);
        draw_class_color(i + 1, b);
        for (int k = 0; k < 3; k++)
            distance += abs(a[k] - b[k]);
        assert_true(distance > 100);
    }
}

static void enlarging_is_smooth_and_bounded(void **state)
{
    uint8_t rgb[6] = { 0, 10, 20, 100, 110, 120 };
    struct picture p = { rgb, 2, 1 }, big;
    struct err err;

    (void)state;
    assert_int_equal(draw_enlarge(&p, 2, &big, &err), 0);
    assert_int_equal(big.w, 4);
    assert_int_equal(big.h, 2);
    assert_int_equal(big.rgb[0], 0);
    assert_int_equal(big.rgb[3], 25);
    assert_int_equal(big.rgb[6], 75);
    assert_int_equal(big.rgb[11], 120);
    free(big.rgb);
    assert_int_equal(draw_enlarge(&p, 0, &big, &err), ERR_INPUT);
    assert_int_equal(draw_enlarge(&p, 1000, &big, &err), ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_lies_on_its_box),
        cmocka_unit_test(labels_leave_small_objects_alone),
        cmocka_unit_test(masks_cover_their_pixels),
        cmocka_unit_test(the_best_is_on_top_and_scores_are_from_nought_to_one),
        cmocka_unit_test(letters_stand_out),
        cmocka_unit_test(letters_leave_a_rim),
        cmocka_unit_test(anything_is_clipped),
        cmocka_unit_test(a_frame_that_overhangs_is_cut),
        cmocka_unit_test(order_given_does_not_show),
        cmocka_unit_test(letters_come_from_utf8),
        cmocka_unit_test(letters_have_their_shape_at_any_scale),
        cmocka_unit_test(colors_of_neighbours_differ),
        cmocka_unit_test(enlarging_is_smooth_and_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
