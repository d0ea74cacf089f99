/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_shards.c - uses: proto worker/core
 * Each shard is given out once, to ranks, to waves and in validation, for all numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/shards.h"

enum { V = 64 };

/* The ranges follow each other, and the lengths of two ranks differ by at most one. */
static void ranks_share_all_shards(void **state)
{
    (void)state;
    for (int v = 1; v <= V; v++)
        for (int ranks = 1; ranks <= v; ranks++) {
            int next = 0;

            for (int r = 0; r < ranks; r++) {
                struct span s = rank_shards(r, ranks, v);

                assert_int_equal(s.lo, next);
                assert_in_range(s.hi - s.lo, v / ranks, (v + ranks - 1) / ranks);
                for (; next < s.hi; next++)
                    assert_int_equal(rank_of_shard(next, ranks, v), r);
            }
            assert_int_equal(next, v);
        }
}

/* Other records are distributed in the same way; there may be fewer of them than ranks. */
static void some_ranks_have_none(void **state)
{
    (void)state;
    for (int n = 1; n < 8; n++)
        for (int i = 0; i < n; i++) {
            struct span s = rank_shards(rank_of_shard(i, 8, n), 8, n);

            assert_true(s.lo == i && s.hi == i + 1);
        }
}

static void waves_share_a_ranks_shards(void **state)
{
    const struct span mine = { 5, 12 };

    (void)state;
    for (int waves = 1; waves <= 20; waves++) {
        int next = mine.lo;

        for (int w = 0; w < waves; w++) {
            struct span s = wave_shards(mine, w, waves);

            assert_int_equal(s.lo, next);
            assert_true(s.hi >= s.lo && s.hi - s.lo <= (7 + waves - 1) / waves);
            assert_true(w < waves - 1 || s.hi > s.lo);
            next = s.hi;
        }
        assert_int_equal(next, mine.hi);
    }
}

static void validation_is_taken_in_turns(void **state)
{
    (void)state;
    assert_int_equal(val_shards(1, 8), 1);
    assert_int_equal(val_shards(8, 8), 1);
    assert_int_equal(val_shards(9, 8), 2);
    for (int n = 1; n <= 20; n++)
        for (int ranks = 1; ranks <= 24; ranks++) {
            int count[24] = { 0 };

            for (int q = 0; q < n; q++)
                count[q % ranks]++;
            for (int r = 0; r < ranks; r++)
                assert_int_equal(val_shards_of_rank(n, r, ranks), count[r]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_all_shards),
        cmocka_unit_test(some_ranks_have_none),
        cmocka_unit_test(waves_share_a_ranks_shards),
        cmocka_unit_test(validation_is_taken_in_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
