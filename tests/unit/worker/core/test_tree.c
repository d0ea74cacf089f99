/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_tree.c - uses: proto worker/core
 * Segments of ranges, and a fixed shape of sums for any distribution of shards. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "worker/core/philox.h"
#include "worker/core/tree.h"
#include "worker/kernels/reduce.h"

static void segments(void **state)
{
    struct tree_span s[TREE_MAX_SEGMENTS];

    (void)state;
    for (int lo = 0; lo < 40; lo++)
        for (int hi = lo; hi < 70; hi++) {
            int n = tree_segments(lo, hi, s), at = lo;

            for (int i = 0; i < n; at = s[i++].hi) {
                assert_true(s[i].lo == at && tree_is_segment(s[i].lo, s[i].hi));
                if (i > 0) /* maximal: neighbours are no siblings */
                    assert_false(s[i].hi - s[i].lo == s[i - 1].hi - s[i - 1].lo && tree_is_segment(s[i - 1].lo, s[i].hi));
            }
            assert_int_equal(at, hi);
        }
}

/* Numbers of segments for eight shards, from the specification. */
static void segments_of_ranks(void **state)
{
    const int ranks[] = { 1, 2, 3, 4, 5, 6, 7, 8 }, want[] = { 1, 2, 5, 4, 6, 6, 7, 8 };

    (void)state;
    for (int i = 0; i < 8; i++) {
        struct tree_span s[TREE_MAX_SEGMENTS];
        int n = 0;

        for (int r = 0; r < ranks[i]; r++)
            n += tree_segments(r * 8 / ranks[i], (r + 1) * 8 / ranks[i], s);
        assert_int_equal(n, want[i]);
    }
}

static void adjacent_parts(void **state)
{
    const float *none = NULL;
    const struct tree_part good[] = { { 4, 6, none }, { 6, 7, none }, { 7, 8, none } }, gap[] = { { 0, 1, none }, { 2, 4, none } };
    const struct tree_part odd[] = { { 0, 1, none }, { 1, 3, none }, { 3, 4, none } };

    (void)state;
    assert_true(tree_parts_adjacent(good, 3) && tree_parts_adjacent(good, 2) && tree_parts_adjacent(good, 1));
    assert_false(tree_parts_adjacent(good, 0) || tree_parts_adjacent(gap, 2) || tree_parts_adjacent(odd, 3));
}

/* A split at the largest power of two below n; for powers of two these are halves. */
static double plain_sum(const double *x, int n)
{
    int half = 1;

    if (n == 1)
        return x[0];
    while (2 * half < n)
        half *= 2;
    return plain_sum(x, half) + plain_sum(x + half, n - half);
}

static void sums(void **state)
{
    struct philox_key k = { .seed = 3 };
    double x[100], wide[200], dst[2];
    const double *rows[100];

    (void)state;
    for (int i = 0; i < 100; i++) {
        x[i] = philox_normal(&k, (uint64_t)i);
        wide[2 * i] = x[i];
        wide[2 * i + 1] = -3 * x[i];
        rows[i] = wide + 2 * i;
    }
    assert_true(tree_sum(x, 1, 0) == 0.0);
    for (int n = 1; n <= 100; n++) {
        assert_true(tree_sum(x, 1, n) == plain_sum(x, n));
        assert_true(tree_sum(wide, 2, n) == plain_sum(x, n));
        tree_sum_rows(dst, rows, n, 2);
        assert_true(dst[0] == plain_sum(x, n));
    }
    tree_sum_rows(wide, rows, 100, 2); /* in place */
    assert_true(wide[0] == plain_sum(x, 100));
}

/* The statistics of the union, also with empty sets in between. */
static void moments(void **state)
{
    enum { SETS = 7, C = 2 };
    const int count[SETS] = { 3, 0, 5, 1, 8, 2, 0 };
    struct philox_key k = { .seed = 4 };
    double stats[SETS][2 * C + 1] = { { 0 } }, merged[2 * C + 1], all[C][32];
    const double *at[SETS];
    int n = 0;

    (void)state;
    for (int s = 0; s < SETS; s++) {
        at[s] = stats[s];
        stats[s][0] = count[s];
        for (int c = 0; c < C; c++) {
            double *x = all[c] + n, mean = 0, m2 = 0;

            for (int i = 0; i < count[s]; i++)
                mean += (x[i] = 100 * c + philox_normal(&k, 2 * (uint64_t)(n + i) + (uint64_t)c)) / count[s];
            for (int i = 0; i < count[s]; i++)
                m2 += (x[i] - mean) * (x[i] - mean);
            stats[s][1 + c] = mean;
            stats[s][1 + C + c] = m2;
        }
        n += count[s];
    }
    tree_moments(merged, at, SETS, C);
    assert_true(merged[0] == (double)n);
    for (int c = 0; c < C; c++) {
        double mean = 0, m2 = 0;

        for (int i = 0; i < n; i++)
            mean += all[c][i] / n;
        for (int i = 0; i < n; i++)
            m2 += (all[c][i] - mean) * (all[c][i] - mean);
        assert_true(fabs(merged[1 + c] - mean) < 1e-12);
        assert_true(fabs(merged[1 + C + c] - m2) < 1e-10);
    }
    tree_moments(merged, at, 1, C);
    assert_memory_equal(merged, stats[0], sizeof(merged));
}

/* Numbers of [lo, hi) by the definition: both halves of the tree, the lower one first. Missing leaves on the right are
 * left out. */
static struct moments merged_by_halves(const struct moments *m, int n, int lo, int hi)
{
    int mid = lo + (hi - lo) / 2;

    if (hi - lo == 1)
        return m[lo];
    if (mid >= n)
        return merged_by_halves(m, n, lo, mid);
    return moments_merge(merged_by_halves(m, n, lo, mid), merged_by_halves(m, n, mid, hi));
}

/* Draws the statistics of n shards. Returns whether a merge of the last two parts in reverse order would give other
 * bits. */
static bool merge_drawn(int n, uint64_t draw)
{
    const struct philox_key k = { .seed = 9 };
    struct moments m[8], want, other;
    double stats[8][3], merged[3];
    const double *at[8];

    for (int s = 0; s < n; s++) {
        uint64_t i = 16 * draw + 2 * (uint64_t)s;

        m[s] = (struct moments){ 3 + 2 * s, philox_normal(&k, i) * (1 + s), 1 + fabs(philox_normal(&k, i + 1)) };
        memcpy(stats[s], &m[s], sizeof m[s]);
        at[s] = stats[s];
    }
    tree_moments(merged, at, n, 1);
    want = merged_by_halves(m, n, 0, 8);
    assert_true(merged[0] == want.count && merged[1] == want.mean && merged[2] == want.m2);
    if (n != 3 && n != 6)
        return false;
    other = moments_merge(merged_by_halves(m + n / 3 * 2, n / 3, 0, 2), merged_by_halves(m, n / 3 * 2, 0, 4));
    return other.mean != want.mean;
}

/* To the bit. */
static void moments_in_order(void **state)
{
    enum { DRAWS = 20 };

    (void)state;
    for (int n = 1; n <= 8; n++) {
        int shown = 0;

        for (uint64_t draw = 0; draw < DRAWS; draw++)
            shown += merge_drawn(n, draw);
        assert_true((n != 3 && n != 6) || shown > DRAWS / 4); /* a wrong order would show */
    }
}

static void add_host(void **state)
{
    enum { N = 1000 };
    static float x[5][N], dst[N];
    struct philox_key k = { .seed = 6 };
    struct tree_part p[] = { { 0, 1, x[0] }, { 1, 2, x[1] }, { 2, 4, x[2] }, { 4, 8, x[3] }, { 8, 16, x[4] } };

    (void)state;
    for (uint64_t i = 0; i < 5 * N; i++)
        x[i / N][i % N] = (float)philox_normal(&k, i);
    tree_add_host(dst, p, 5, N);
    for (int i = 0; i < N; i++)
        assert_true(dst[i] == (((x[0][i] + x[1][i]) + x[2][i]) + x[3][i]) + x[4][i]);
    tree_add_host(dst, p + 4, 1, N);
    assert_memory_equal(dst, x[4], sizeof(dst));
    tree_add_host(x[0], p, 4, N); /* in place */
    tree_add_host(dst, (struct tree_part[]){ { 0, 8, x[0] }, { 8, 16, x[4] } }, 2, N);
    tree_add_host(x[4], (struct tree_part[]){ { 0, 8, x[0] }, { 8, 16, x[4] } }, 2, N);
    assert_memory_equal(dst, x[4], sizeof(dst));
}

/* No subtree: siblings first, the rest from the right. */
static void add_host_leftovers(void **state)
{
    enum { N = 1000 };
    static float x[5][N], dst[N];
    struct philox_key k = { .seed = 4 };
    struct tree_part p[] = { { 1, 2, x[0] }, { 2, 3, x[1] }, { 3, 4, x[2] }, { 4, 6, x[3] }, { 6, 7, x[4] } };

    (void)state;
    for (uint64_t i = 0; i < 5 * N; i++)
        x[i / N][i % N] = (float)philox_normal(&k, i);
    tree_add_host(dst, p, 5, N);
    for (int i = 0; i < N; i++) {
        assert_true(dst[i] == x[0][i] + ((x[1][i] + x[2][i]) + (x[3][i] + x[4][i])));
        assert_true(dst[i] == tree_element(p, 5, (size_t)i));
    }
    for (int i = 0; i < 3; i++)
        p[i] = (struct tree_part){ i, i + 1, x[i] };
    tree_add_host(dst, p, 3, N);
    for (int i = 0; i < N; i++)
        assert_true(dst[i] == (x[0][i] + x[1][i]) + x[2][i]);
    tree_add_host(x[2], p, 3, N); /* in place */
    assert_memory_equal(dst, x[2], sizeof(dst));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(segments), cmocka_unit_test(segments_of_ranks), cmocka_unit_test(adjacent_parts),
                                        cmocka_unit_test(sums),     cmocka_unit_test(moments),           cmocka_unit_test(moments_in_order),
                                        cmocka_unit_test(add_host), cmocka_unit_test(add_host_leftovers) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
