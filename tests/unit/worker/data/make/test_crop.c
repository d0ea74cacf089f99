/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/make/test_crop.c
 * uses: proto worker/core worker/data worker/mask
 * Parts cut out of pictures: draws and boxes against the numbers of specs sparse_rcnn section 8. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "worker/core/philox.h"
#include "worker/data/make/crop.h"
#include "worker/data/set/dataset.h"

/* ---- the draws ---- */

static uint32_t word(uint64_t seed, int64_t epoch, int32_t image, int draw)
{
    const struct philox_key key = { .seed = seed, .step = (uint32_t)epoch, .op = philox_op("data.crop") };
    uint32_t four[4];

    philox_block(&key, (uint64_t)image * 2 + (uint64_t)(draw / 4), four);
    return four[draw % 4];
}

/* lo .. hi, both included. */
static int among(uint32_t word, int lo, int hi)
{
    return lo + (int)(((uint64_t)word * (uint64_t)(hi - lo + 1)) >> 32);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int nearest(double v)
{
    return v < 1 ? 1 : (int)(v + 0.5);
}

static void check_draw(float prob, int64_t epoch, int32_t image, int h, int w, bool flip, int seen[3])
{
    static const int sizes[] = { 400, 500, 600 };
    const int size = sizes[among(word(7, epoch, image, 1), 0, 2)];
    int sh = h < w ? size : nearest((double)size / w * h), sw = h < w ? nearest((double)size / h * w) : size;
    struct crop c;

    if (!((double)(word(7, epoch, image, 0) >> 8) / 16777216 < (double)prob)) {
        assert_false(crop_draw(prob, 7, epoch, image, h, w, flip, &c));
        return;
    }
    seen[size / 100 - 4]++;
    assert_true(crop_draw(prob, 7, epoch, image, h, w, flip, &c));
    assert_true(c.scaled.rule == RESIZE_D2 && c.scaled.h == h && c.scaled.w == w && c.scaled.flip == flip);
    assert_true(c.scaled.to.h == sh && c.scaled.to.w == sw);
    assert_int_equal(c.window.h, among(word(7, epoch, image, 2), least(sh, 384), least(sh, 600)));
    assert_int_equal(c.window.w, among(word(7, epoch, image, 3), least(sw, 384), least(sw, 600)));
    assert_int_equal(c.y, among(word(7, epoch, image, 4), 0, sh - c.window.h));
    assert_int_equal(c.x, among(word(7, epoch, image, 5), 0, sw - c.window.w));
    assert_int_equal(crop_bytes(&c), 3 * sh * sw);
}

/* Half of the pictures are cut, a third of these at each size. */
static void draws_are_the_formula(void **state)
{
    static const int sides[][2] = { { 480, 640 }, { 1080, 1920 }, { 2000, 300 }, { 5, 5 }, { 40, 41 }, { 17, 90 } };
    int seen[3] = { 0 }, all;

    (void)state;
    for (int i = 0; i < 3000; i++)
        check_draw(0.5f, i % 5, i, sides[i % 6][0], sides[i % 6][1], i % 2, seen);
    all = seen[0] + seen[1] + seen[2];
    assert_in_range(all, 1400, 1600);
    for (int k = 0; k < 3; k++)
        assert_in_range(seen[k], all / 3 - 80, all / 3 + 80);
    check_draw(0, 0, 1, 480, 640, false, seen);
    assert_int_equal(all, seen[0] + seen[1] + seen[2]);
    check_draw(1, 0, 1, 480, 640, false, seen);
    assert_int_equal(all + 1, seen[0] + seen[1] + seen[2]);
}

/* A line of pixels would not fit into memory. */
static void lines_of_pixels_stay_whole(void **state)
{
    struct crop c;

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_false(crop_draw(1, 3, 0, i, 1, 16384, false, &c));
        assert_false(crop_draw(1, 3, 0, i, 4100, 100, false, &c)); /* 16400 at 400 */
        assert_int_equal(crop_draw(1, 3, 0, i, 4096, 100, false, &c), among(word(3, 0, i, 1), 0, 2) == 0);
    }
}

/* ---- boxes ---- */

static void check_box(const struct crop *c, double x, double y, double w, double h)
{
    const struct resizing *z = &c->scaled;
    const struct dataset_box b = { .x = x, .y = y, .w = w, .h = h, .cls = 5 };
    /* Mirrored as stored, then enlarged, moved and cut: the reference's order. */
    double left = z->flip ? z->w - x - w : x, sx = (double)z->to.w / z->w, sy = (double)z->to.h / z->h;
    double x1 = left * sx - c->x, x2 = (left + w) * sx - c->x, y1 = y * sy - c->y, y2 = (y + h) * sy - c->y;
    struct dataset_box got;
    bool kept = crop_box(c, &b, &got);

    x1 = x1 < 0 ? 0 : x1;
    y1 = y1 < 0 ? 0 : y1;
    x2 = x2 > c->window.w ? c->window.w : x2;
    y2 = y2 > c->window.h ? c->window.h : y2;
    assert_int_equal(kept, x2 - x1 > 1e-5 && y2 - y1 > 1e-5);
    if (!kept)
        return;
    assert_true(fabs(got.x - x1) < 1e-9 && fabs(got.y - y1) < 1e-9 && fabs(got.w - (x2 - x1)) < 1e-9 && fabs(got.h - (y2 - y1)) < 1e-9);
    assert_int_equal(got.cls, 5);
}

static void boxes_of_the_window(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        struct crop c;

        assert_true(crop_draw(1, 11, 2, i, 480, 640, i % 2, &c));
        for (int k = 0; k < 40; k++) {
            double x = (i * 37 + k * 53) % 640, y = (i * 11 + k * 29) % 480;

            check_box(&c, x, y, (k * 7 + 1) % (640 - (int)x) + 0.5, (k * 13 + 1) % (480 - (int)y) + 0.25);
        }
    }
}

/* A box that keeps a sliver stays; one with 1e-5 pixels goes. */
static void slivers(void **state)
{
    const struct crop c = { .scaled = { RESIZE_D2, 400, 400, { 400, 400 }, false }, .y = 0, .x = 10, .window = { 390, 390 } };
    struct dataset_box b = { .x = 0, .y = 5, .w = 10 + 2e-5, .h = 50 }, got;

    (void)state;
    assert_true(crop_box(&c, &b, &got) && got.x == 0 && got.w > 1.9e-5 && got.w < 2.1e-5 && got.h == 50);
    b.w = 10 + 0.9e-5;
    assert_false(crop_box(&c, &b, &got));
    b.w = 5; /* all of it is outside */
    assert_false(crop_box(&c, &b, &got));
    b = (struct dataset_box){ .x = 20, .y = 390 - 0.9e-5, .w = 10, .h = 5 };
    assert_false(crop_box(&c, &b, &got));
    b.y = 390 - 2e-5;
    assert_true(crop_box(&c, &b, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(draws_are_the_formula), cmocka_unit_test(lines_of_pixels_stay_whole),
                                        cmocka_unit_test(boxes_of_the_window), cmocka_unit_test(slivers) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
