/* tests/unit/test_sampler.c - uses: proto worker/core worker/data worker/data/sample */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/data/sampler.h"

static void epochs_are_permutations_and_differ(void **state)
{
    int32_t a[101], b[101], again[101];
    char seen[101] = { 0 };
    int fixed = 0;

    (void)state;
    sampler_order(7, 0, 101, a);
    sampler_order(7, 1, 101, b);
    sampler_order(7, 0, 101, again);
    for (int i = 0; i < 101; i++) {
        assert_in_range(a[i], 0, 100);
        assert_int_equal(seen[a[i]]++, 0);
        fixed += a[i] == b[i];
    }
    assert_true(fixed < 10);
    assert_memory_equal(a, again, sizeof a);
    sampler_order(8, 0, 101, b);
    assert_memory_not_equal(a, b, sizeof a);
}

/* Chi-square over where sample 0 lands: 5 places, 4 degrees of freedom, 18.5 is passed once in a thousand. */
static void every_place_is_equally_likely(void **state)
{
    int count[5] = { 0 }, n = 20000;
    int32_t order[5];
    double chi = 0;

    (void)state;
    for (int e = 0; e < n; e++) {
        sampler_order(3, e, 5, order);
        for (int i = 0; i < 5; i++)
            count[i] += order[i] == 0;
    }
    for (int i = 0; i < 5; i++)
        chi += (count[i] - n / 5.0) * (count[i] - n / 5.0) / (n / 5.0);
    assert_true(chi < 18.5);
}

/* Whatever the batch and wherever one starts, position g is the same sample, and each epoch gives each sample once. */
static void stream_runs_across_epochs(void **state)
{
    struct sampler *s, *late;
    struct err err;
    int seen[3][10] = { 0 };

    (void)state;
    assert_int_equal(sampler_new(1, 10, &s, &err), 0);
    assert_int_equal(sampler_new(1, 10, &late, &err), 0);
    for (int64_t g = 0; g < 30; g++) {
        struct draw d = sampler_at(s, g);

        assert_int_equal(d.epoch, g / 10);
        seen[d.epoch][d.sample]++;
        if (g >= 17)
            assert_int_equal(sampler_at(late, g).sample, d.sample);
    }
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < 10; i++)
            assert_int_equal(seen[e][i], 1);
    sampler_free(s);
    sampler_free(late);
    assert_int_equal(sampler_new(1, 0, &s, &err), ERR_DATA);
    assert_int_equal(stream_position(1, 8, 4, 3, 1), 7);
    assert_int_equal(stream_position(3, 8, 2, 1, 0), 20);
}

/* Vector `multiscale` of specs yolov3 section 5.6. */
static void sizes_follow_the_vector(void **state)
{
    static const int want[12] = { 576, 448, 320, 608, 352, 416, 352, 544, 384, 608, 416, 544 };

    (void)state;
    for (int k = 0; k < 12; k++) {
        assert_int_equal(multiscale_size(0, k * 10 + 1, 100000, 320, 608, 32), want[k]);
        assert_int_equal(multiscale_size(0, k * 10 + 10, 100000, 320, 608, 32), want[k]);
    }
    assert_int_equal(multiscale_size(0, 99801, 100000, 320, 608, 32), 608);
    assert_int_equal(multiscale_size(5, 96, 100, 320, 608, 32), 608);
    assert_int_equal(multiscale_size(5, 50, 100, 416, 416, 32), 416);
}

/* A network of stride 64: the same words choose among fewer sizes. */
static void sizes_are_as_far_apart_as_asked(void **state)
{
    bool seen[5] = { false };

    (void)state;
    for (int k = 0; k < 100; k++) {
        int size = multiscale_size(0, k * 10 + 1, 100000, 128, 384, 64);

        assert_in_range(size, 128, 384);
        assert_int_equal(size % 64, 0);
        seen[size / 64 - 2] = true;
    }
    for (int i = 0; i < 5; i++)
        assert_true(seen[i]);
}

/* The last twentieth, at most 200 steps, is of the largest size; the step before is drawn like any other. */
static void the_end_is_of_the_largest_size(void **state)
{
    static const int rows[][2] = { { 100000, 200 }, { 4020, 200 }, { 4000, 200 }, { 3999, 199 }, { 100, 5 }, { 20, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int steps = rows[i][0], at_end = rows[i][1], others = 0;

        for (uint64_t seed = 0; seed < 20; seed++) {
            for (int k = 0; k < at_end; k++)
                assert_int_equal(multiscale_size(seed, steps - k, steps, 320, 608, 32), 608);
            others += multiscale_size(seed, steps - at_end, steps, 320, 608, 32) != 608;
        }
        assert_true(others > 10);
    }
}

/* The longer side is drawn; the other keeps its ratio to it, in whole grains, and is never nothing. */
static void rectangles_keep_their_ratio(void **state)
{
    static const struct {
        struct canvas nominal;
        int min, max, grain, other[3];                              /* of the smallest size, of the one in the middle, of the largest */
    } rows[] = { { { 320, 608 }, 512, 704, 32, { 256, 320, 384 } }, /* 269, 320, 370 */
                 { { 608, 320 }, 512, 704, 32, { 256, 320, 384 } },
                 { { 64, 96 }, 96, 224, 64, { 64, 128, 128 } }, /* 64, 107, 149 */
                 { { 32, 416 }, 32, 224, 32, { 32, 32, 32 } } };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scales s = { rows[i].nominal, rows[i].min, rows[i].max, (rows[i].max - rows[i].min) / 2, rows[i].grain };
        bool wide = s.nominal.w > s.nominal.h, seen[3] = { false };
        struct canvas largest = scales_largest(&s);

        for (int k = 0; k < 60; k++) {
            struct canvas c = scales_canvas(&s, 3, k * 10 + 1, 100000);
            int longer = wide ? c.w : c.h, n = (longer - s.min) / s.apart;

            assert_int_equal(longer, multiscale_size(3, k * 10 + 1, 100000, s.min, s.max, s.apart));
            assert_int_equal(wide ? c.h : c.w, rows[i].other[n]);
            assert_true(c.h <= largest.h && c.w <= largest.w);
            seen[n] = true;
        }
        assert_true(seen[0] && seen[1] && seen[2]);
        assert_int_equal(canvas_long_side(largest), s.max);
        s.min = s.max = canvas_long_side(s.nominal);
        assert_true(canvas_equal(scales_canvas(&s, 3, 1, 100), s.nominal));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_are_permutations_and_differ), cmocka_unit_test(every_place_is_equally_likely),
        cmocka_unit_test(stream_runs_across_epochs),          cmocka_unit_test(sizes_follow_the_vector),
        cmocka_unit_test(sizes_are_as_far_apart_as_asked),    cmocka_unit_test(the_end_is_of_the_largest_size),
        cmocka_unit_test(rectangles_keep_their_ratio),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
