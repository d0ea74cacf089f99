/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_reduce.c - the canonical tree over gradients, sums of
 * squares in blocks. uses: proto worker/core cpu cuda */
#include "tests/device/devices.h"

#include <math.h>

#include "worker/core/tree.h"
#include "worker/kernels/reduce.h"

enum { COUNT = 3001, MAX_SHARDS = 16 };

struct tree_case {
    int nparts, lo[MAX_SHARDS], hi[MAX_SHARDS];
    bool in_place;
};

/* The definition: recursive halves over single shards. */
static float plain_tree(float *const *leaf, int lo, int hi, size_t i)
{
    return hi - lo == 1 ? leaf[lo][i] : plain_tree(leaf, lo, (lo + hi) / 2, i) + plain_tree(leaf, (lo + hi) / 2, hi, i);
}

static void make_leaves(float **leaf)
{
    for (int v = 0; v < MAX_SHARDS; v++)
        leaf[v] = numbers(COUNT, 200 + (uint64_t)v, -1.0f, 1.0f);
}

static void free_leaves(float **leaf)
{
    for (int v = 0; v < MAX_SHARDS; v++)
        free(leaf[v]);
}

static void run_tree(struct device *dev, const void *arg, void *ret)
{
    const struct tree_case *t = arg;
    struct tree_part part[MAX_SHARDS];
    float *leaf[MAX_SHARDS], sum[COUNT], *dst = put(dev, NULL, sizeof(sum));
    struct err err;

    make_leaves(leaf);
    for (int p = 0; p < t->nparts; p++) {
        for (size_t i = 0; i < COUNT; i++)
            sum[i] = plain_tree(leaf, t->lo[p], t->hi[p], i);
        part[p] = (struct tree_part){ t->lo[p], t->hi[p], put(dev, sum, sizeof(sum)) };
    }
    if (t->in_place)
        dst = (float *)(uintptr_t)part[t->nparts - 1].data;
    assert_int_equal(dev->on->reduce->tree_add(dev, dst, part, t->nparts, COUNT, &err), 0);
    get(dev, ret, dst, sizeof(sum));
    free_leaves(leaf);
}

static void check_tree(const struct tree_case *t)
{
    float *leaf[MAX_SHARDS], out[COUNT];

    make_leaves(leaf);
    same_on_all(run_tree, t, out, sizeof(out));
    for (size_t i = 0; i < COUNT; i++)
        assert_true(out[i] == plain_tree(leaf, t->lo[0], t->hi[t->nparts - 1], i));
    free_leaves(leaf);
}

/* Each range of aligned subtrees, cut for every number of ranks: the same sums. */
static void trees(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MAX_SHARDS; ranks++)
        for (int bits = 0; bits < 2; bits++) {
            struct tree_case t = { .in_place = bits };

            for (int r = 0; r < ranks; r++) {
                struct tree_span s[TREE_MAX_SEGMENTS];
                int n = tree_segments(r * MAX_SHARDS / ranks, (r + 1) * MAX_SHARDS / ranks, s);

                for (int i = 0; i < n; i++) {
                    t.lo[t.nparts] = s[i].lo;
                    t.hi[t.nparts++] = s[i].hi;
                }
            }
            check_tree(&t);
        }
    check_tree(&(struct tree_case){ 3, { 8, 10, 11 }, { 10, 11, 12 }, false }); /* a subtree that does not start at 0 */
}

/* ---- parts that form no subtree, more parts than travel at once, addresses that no wide load can use ---- */

enum { MANY = 130, SHORT = 517 };

struct parts_case {
    int nparts, lo[MANY], hi[MANY];
    int dst_off, odd_part; /* distance in floats of dst, and of this part, from an aligned address; -1: no part */
    int count;
    int in_place; /* the part that is dst, or -1 */
};

/* The definition: the largest subtrees fold as soon as they are complete, the rest from the right. */
static float plain_parts(const struct parts_case *t, float *const *x, size_t i)
{
    float sum[MANY] = { 0.0f };
    int lo[MANY], hi[MANY], n = 0;

    for (int p = 0; p < t->nparts; p++) {
        sum[n] = x[p][i];
        lo[n] = t->lo[p];
        hi[n++] = t->hi[p];
        for (; n > 1 && tree_is_segment(lo[n - 2], hi[n - 1]) && hi[n - 1] - lo[n - 1] == hi[n - 2] - lo[n - 2]; n--) {
            sum[n - 2] += sum[n - 1];
            hi[n - 2] = hi[n - 1];
        }
    }
    for (; n > 1; n--)
        sum[n - 2] += sum[n - 1];
    return sum[0];
}

static float *part_numbers(const struct parts_case *t, int p)
{
    return numbers((size_t)t->count, 900 + (uint64_t)p, -1.0f, 1.0f);
}

/* The result, then the number before it and the one behind it. */
static void run_parts(struct device *dev, const void *arg, void *ret)
{
    const struct parts_case *t = arg;
    struct tree_part part[MANY];
    size_t bytes = (size_t)t->count * sizeof(float);
    float *dst = (float *)put(dev, NULL, bytes + 128) + 1 + t->dst_off, *out = ret;
    struct err err;

    for (int p = 0; p < t->nparts; p++) {
        float *x = part_numbers(t, p), *at = put(dev, NULL, bytes + 128);

        at += p == t->odd_part;
        if (t->in_place == p)
            at = dst;
        assert_int_equal(dev->ops->upload(dev, at, x, bytes, &err), 0);
        part[p] = (struct tree_part){ t->lo[p], t->hi[p], at };
        free(x);
    }
    assert_int_equal(dev->on->reduce->tree_add(dev, dst, part, t->nparts, (size_t)t->count, &err), 0);
    get(dev, out, dst, bytes);
    get(dev, out + t->count, dst - 1, sizeof(float));
    get(dev, out + t->count + 1, dst + t->count, sizeof(float));
}

static void check_parts(const struct parts_case *t)
{
    float out[SHORT + 2], *x[MANY];

    for (int p = 0; p < t->nparts; p++)
        x[p] = part_numbers(t, p);
    same_on_all(run_parts, t, out, ((size_t)t->count + 2) * sizeof(float));
    for (int i = 0; i < t->count; i++)
        assert_true(out[i] == plain_parts(t, x, (size_t)i));
    assert_true(out[t->count] == 0.0f && out[t->count + 1] == 0.0f);
    for (int p = 0; p < t->nparts; p++)
        free(x[p]);
}

/* nparts leaves from `first` on. */
static struct parts_case leaves(int first, int nparts)
{
    struct parts_case t = { .nparts = nparts, .odd_part = -1, .count = SHORT, .dst_off = 15, .in_place = -1 };

    for (int p = 0; p < nparts; p++) {
        t.lo[p] = first + p;
        t.hi[p] = first + p + 1;
    }
    return t;
}

static void leftovers(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++)
        for (int first = 0; first < 4; first += 3) {
            struct parts_case t = leaves(first, n);

            check_parts(&t);
            t.in_place = n / 2;
            check_parts(&t);
        }
}

static void many_parts(void **state)
{
    const int n[] = { 16, 17, 63, 64, 65, 128, MANY };

    (void)state;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        struct parts_case t = leaves(0, n[i]);

        t.count = 40;
        check_parts(&t);
    }
}

/* Ever larger, then ever smaller subtrees: as many sums wait as can. */
static void deep_parts(void **state)
{
    struct parts_case t = { .odd_part = -1, .count = 40, .in_place = -1 };
    struct tree_span s[TREE_MAX_SEGMENTS];

    (void)state;
    t.nparts = tree_segments(1, (1 << 29) - 1, s);
    assert_int_equal(t.nparts, 56);
    for (int p = 0; p < t.nparts; p++) {
        t.lo[p] = s[p].lo;
        t.hi[p] = s[p].hi;
    }
    check_parts(&t);
}

static void odd_addresses(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++)
        for (int bits = 0; bits < 8; bits++) {
            struct parts_case t = leaves(0, n);

            t.dst_off = bits & 1 ? 15 : 1;
            t.odd_part = bits & 2 ? 1 : -1;
            t.count = bits & 4 ? 3 : 512;
            check_parts(&t);
        }
}

struct squares_case {
    const float *g;
    size_t count;
};

static size_t blocks_of(size_t count)
{
    return (count + SUM_BLOCK - 1) / SUM_BLOCK;
}

static void run_squares(struct device *dev, const void *arg, void *ret)
{
    const struct squares_case *t = arg;
    size_t nblocks = blocks_of(t->count);
    double *blocks = put(dev, NULL, nblocks * sizeof(double));
    struct err err;

    assert_int_equal(dev->on->reduce->sum_squares(dev, blocks, NULL, put(dev, t->g, t->count * sizeof(float)), t->count, &err), 0);
    get(dev, ret, blocks, nblocks * sizeof(double));
}

/* By the definition in device.h: lane i adds the numbers i, i + 16 ...; then neighbouring lanes are added, then
 * neighbours of these sums. */
static double plain_squares(const float *g, size_t n)
{
    double lane[16] = { 0 };

    for (size_t i = 0; i < n; i++)
        lane[i % 16] += (double)g[i] * (double)g[i];
    return (((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]))) +
           (((lane[8] + lane[9]) + (lane[10] + lane[11])) + ((lane[12] + lane[13]) + (lane[14] + lane[15])));
}

/* Numbers of every size, each block in its own order of sizes: an addition in another order gives another sum. */
static void squares(void **state)
{
    static const size_t counts[] = { 1, 17, 1024, 1025, 2148, 5000 };
    struct squares_case t;

    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *g = numbers(counts[c], 301, -2.0f, 2.0f);
        double out[8];

        for (size_t i = 0; i < counts[c]; i++)
            g[i] = ldexpf(g[i], (int)(i * 7 % 41 + i % 16 * 3 % 7) - 20);
        t = (struct squares_case){ g, counts[c] };
        same_on_all(run_squares, &t, out, blocks_of(t.count) * sizeof(double));
        for (size_t j = 0; j < blocks_of(t.count); j++)
            assert_true(out[j] == plain_squares(g + j * SUM_BLOCK, j + 1 < blocks_of(t.count) ? SUM_BLOCK : t.count - j * SUM_BLOCK));
        free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(trees),      cmocka_unit_test(leftovers),     cmocka_unit_test(many_parts),
                                        cmocka_unit_test(deep_parts), cmocka_unit_test(odd_addresses), cmocka_unit_test(squares) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
