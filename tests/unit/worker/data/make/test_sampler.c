/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/data/make/test_sampler.c -
 * uses: proto worker/core worker/mask worker/data */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/data/make/sampler.h"

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

/* For any batch and any start, position g is the same sample, and each epoch gives each sample once. */
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

/* ---- groups ---- */

enum { MOST = 60 };

static struct sampler *grouped(uint64_t seed, int n, const uint8_t *group, int shard_images)
{
    struct sampler *s = NULL;
    struct err err;

    assert_int_equal(sampler_new(seed, n, &s, &err), 0);
    assert_int_equal(sampler_group(s, group, shard_images, &err), 0);
    return s;
}

/* Epoch e of n samples in groups, shards of b: no sample is lost or doubled. The places before the first whole shard
 * are as drawn. Only the last whole shards are mixed, and no more of them than the groups' rests can fill. */
static void check_epoch(struct sampler *s, uint64_t seed, const uint8_t *group, int groups, int n, int b, int e)
{
    int first = (b - (int)((int64_t)e * n % b)) % b, mixed = 0, whole = 0;
    int32_t drawn[MOST], order[MOST] = { 0 };
    char seen[MOST] = { 0 };

    first = first < n ? first : n;
    sampler_order(seed, e, n, drawn);
    for (int i = 0; i < n; i++) {
        struct draw d = sampler_at(s, (int64_t)e * n + i);

        assert_int_equal(d.epoch, e);
        assert_int_equal(seen[d.sample]++, 0);
        order[i] = d.sample;
        assert_true(i >= first || d.sample == drawn[i]);
    }
    for (int i = first; i + b <= n; i += b, whole++) {
        bool alike = true;

        for (int k = 1; k < b; k++)
            alike = alike && group[order[i + k]] == group[order[i]];
        mixed += !alike;
        assert_true(!alike || mixed == 0 || i + b > n - groups * (b - 1));
    }
    assert_true(whole == 0 || mixed <= groups - 1);
}

static void groups_share_shards(void **state)
{
    uint8_t group[MOST];

    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        int n = 1 + (int)(seed * 7 % MOST), b = 1 + (int)(seed % 9), groups = 1 + (int)(seed % 4);
        struct sampler *s;

        for (int i = 0; i < n; i++)
            group[i] = (uint8_t)((uint64_t)i * i * seed / 3 % (uint64_t)groups);
        s = grouped(seed, n, group, b);
        for (int e = 0; e < 7; e++)
            check_epoch(s, seed, group, groups, n, b, e);
        sampler_free(s);
    }
}

/* By hand: 10 samples in shards of 4; the even samples are of group 1. */
static void groups_by_hand(void **state)
{
    static const uint8_t group[10] = { 1, 0, 1, 0, 1, 0, 1, 0, 1, 0 };
    struct sampler *s = grouped(5, 10, group, 4), *late = grouped(5, 10, group, 4);
    int32_t drawn[2][10], want[20], to = 0, waiting[2][4], n[2];

    (void)state;
    for (int e = 0; e < 2; e++) {
        sampler_order(5, e, 10, drawn[e]);
        n[0] = n[1] = 0;
        for (int i = 0; i < 10; i++) {
            int g = group[drawn[e][i]];

            if (e == 1 && i < 2) { /* 10 = 2 * 4 + 2: the third shard has two samples of the next epoch */
                want[to++] = drawn[e][i];
                continue;
            }
            waiting[g][n[g]++] = drawn[e][i];
            for (int k = 0; n[g] == 4 && k < 4; k++)
                want[to++] = waiting[g][k];
            n[g] %= 4;
        }
        for (int g = 0; g < 2; g++)
            for (int k = 0; k < n[g]; k++)
                want[to++] = waiting[g][k];
    }
    assert_int_equal(to, 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(sampler_at(s, i).sample, want[i]);
    for (int i = 19; i >= 0; i -= 3) /* wherever one starts */
        assert_int_equal(sampler_at(late, i).sample, want[i]);
    sampler_free(s);
    sampler_free(late);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_are_permutations_and_differ),
        cmocka_unit_test(every_place_is_equally_likely),
        cmocka_unit_test(stream_runs_across_epochs),
        cmocka_unit_test(sizes_follow_the_vector),
        cmocka_unit_test(sizes_are_as_far_apart_as_asked),
        cmocka_unit_test(the_end_is_of_the_largest_size),
        cmocka_unit_test(rectangles_keep_their_ratio),
        cmocka_unit_test(groups_share_shards),
        cmocka_unit_test(groups_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
