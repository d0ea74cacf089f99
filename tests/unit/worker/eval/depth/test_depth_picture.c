/* SPDX-License-Identifier: Apache-2.0 */ /* uses: proto worker/eval worker/mask worker/core
 * tests/unit/worker/eval/depth/test_depth_picture.c - Depth as numbers of 16 bits and in colours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/eval/depth/depth_picture.h"
#include "worker/eval/result.h"

static void numbers(void **state)
{
    const float depth[] = { 0.1f, 1, 2.0005f, 100, 127.998f, 128, 1e9f, 1e-6f };
    const struct result_map m = { 8, 1, depth };
    const uint16_t want[] = { 51, 512, 1024, 51200, 65535, 65535, 65535, 1 };
    uint16_t is[8];

    (void)state;
    assert_true(depth_code_scale(100, 20) == 512);
    assert_true(depth_code_scale(127.9, 20) == 512 && depth_code_scale(128, 20) == 256);
    assert_true(depth_code_scale(65535, 65535) == 1 && depth_code_scale(65536, 65536) == 0.5);
    assert_true(depth_code_scale(1e-9, 1e-9) == 32768 && depth_code_scale(1e30, 1e30) == 1.0 / 1024);
    assert_true(depth_code_scale(100, 0.1) == 8192 && depth_code_scale(1e30, 1023.9) == 1 && depth_code_scale(1e30, 1024) == 0.5);
    depth_code(&m, 1, 512, is);
    assert_memory_equal(is, want, sizeof want);
    depth_code(&m, 36, 16, is);
    assert_int_equal(is[1], 576);
}

/* Weighted as by the eye. */
static double lightness(const uint8_t c[3])
{
    return 0.30 * c[0] + 0.59 * c[1] + 0.11 * c[2];
}

static void colours_ascend(void **state)
{
    uint8_t before[3], c[3];

    (void)state;
    depth_colour(0, before);
    assert_true(lightness(before) < 30);
    for (int i = 1; i <= 255; i++) {
        depth_colour(i / 255.0, c);
        assert_true(lightness(c) > lightness(before) - 0.6);
        if (i >= 8) {
            uint8_t far[3];

            depth_colour((i - 8) / 255.0, far);
            assert_true(lightness(c) > lightness(far) + 3);
        }
        memcpy(before, c, sizeof before);
    }
    assert_true(lightness(before) > 225);
    depth_colour(7, c); /* beyond */
    assert_memory_equal(c, before, sizeof c);
}

/* Near is bright. Everything nearer than the nearest twentieth of the pixels has full brightness. A constant depth has
 * a single colour. */
static void near_is_bright(void **state)
{
    enum { W = 40, H = 5 };
    float depth[W * H];
    uint8_t rgb[W * H][3], brightest[3], darkest[3];
    const struct result_map m = { W, H, depth };
    struct err err;

    (void)state;
    for (int i = 0; i < W * H; i++)
        depth[i] = 1 / (1 + (float)(i * 37 % (W * H)));
    depth_colour(1, brightest);
    depth_colour(0, darkest);
    assert_int_equal(depth_colours(&m, rgb[0], &err), 0);
    for (int i = 0; i < W * H; i++) {
        int rank = i * 37 % (W * H); /* 0: farthest */

        if (rank >= W * H - 1 - W * H / 20)
            assert_memory_equal(rgb[i], brightest, 3);
        else if (rank > 0)
            assert_true(lightness(rgb[i]) < lightness(brightest));
        else
            assert_memory_equal(rgb[i], darkest, 3);
    }
    for (int i = 0; i < W * H; i++)
        depth[i] = 3;
    assert_int_equal(depth_colours(&m, rgb[0], &err), 0);
    assert_memory_equal(rgb[0], rgb[W * H - 1], 3);
}

static void what_is_no_depth(void **state)
{
    float depth[] = { 1, 2, 3, 4 };
    struct result r = { .kind = RESULT_DEPTH, .depth = { 2, 2, depth } };
    struct err err;

    (void)state;
    assert_int_equal(result_depth_check(&r, &err), 0);
    depth[3] = 0;
    assert_int_equal(result_depth_check(&r, &err), ERR_NONFINITE);
    depth[3] = (float)NAN;
    assert_int_equal(result_depth_check(&r, &err), ERR_NONFINITE);
    r.depth.w = 0;
    assert_int_equal(result_depth_check(&r, &err), ERR_INPUT);
    r.kind = RESULT_BOXES;
    assert_int_equal(result_depth_check(&r, &err), ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(numbers), cmocka_unit_test(colours_ascend), cmocka_unit_test(near_is_bright),
                                        cmocka_unit_test(what_is_no_depth) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
