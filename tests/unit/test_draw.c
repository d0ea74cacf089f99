/* Boxes and labels on pictures. uses: proto worker/eval worker/core */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
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

static void anything_is_clipped(void **state)
{
    static const double boxes[][4] = {
        { -50, -50, 500, 500 }, { -1e300, -1e300, 1e308, 1e308 },
        { 19, 9, 0, 0 },        { 1e9, 1e9, 5, 5 },
        { -30, 4, 10, 3 },      { 3, 3, 1, 1 },
        { 0, 0, 20, 10 },       { NAN, 0, 5, 5 },
        { 5, 5, -3, 2 },        { 0, 0, INFINITY, 1 },
    };
    struct detection d[10] = { { .score = .5 } };

    (void)state;
    for (int w = 1; w <= 20; w += 19)
        for (int h = 1; h <= 10; h += 9) {
            struct picture p = blank(w, h);

            for (int i = 0; i < 10; i++) {
                d[i] = (struct detection){ .cls = i * 1000 - 1, .score = i == 3 ? NAN : i * .3 };
                memcpy(d[i].box, boxes[i], sizeof d[i].box);
            }
            draw(&p, d, 10);
            free(p.rgb);
        }
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
        cmocka_unit_test(anything_is_clipped),
        cmocka_unit_test(order_given_does_not_show),
        cmocka_unit_test(letters_come_from_utf8),
        cmocka_unit_test(letters_have_their_shape_at_any_scale),
        cmocka_unit_test(colors_of_neighbours_differ),
        cmocka_unit_test(enlarging_is_smooth_and_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
