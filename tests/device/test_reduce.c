/* tests/device/test_reduce.c - the canonical tree over gradients, sums of squares in blocks, the evidence hash.
 * uses: proto worker/core cpu */
#include "tests/device/devices.h"

#include "worker/core/hash.h"
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
    assert_int_equal(dev->ops->tree_add(dev, dst, part, t->nparts, COUNT, &err), 0);
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

static void run_squares(struct device *dev, const void *arg, void *ret)
{
    size_t count = *(const size_t *)arg, nblocks = (count + SUM_BLOCK - 1) / SUM_BLOCK;
    float *g = numbers(count, 300, -2.0f, 2.0f);
    double *blocks = put(dev, NULL, nblocks * sizeof(double));
    struct err err;

    assert_int_equal(dev->ops->sum_squares(dev, blocks, put(dev, g, count * sizeof(float)), count, &err), 0);
    get(dev, ret, blocks, nblocks * sizeof(double));
    free(g);
}

static void squares(void **state)
{
    const size_t counts[] = { 1, 17, 1024, 5000 };

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t nblocks = (counts[i] + SUM_BLOCK - 1) / SUM_BLOCK;
        float *g = numbers(counts[i], 300, -2.0f, 2.0f);
        double out[8];

        same_on_all(run_squares, &counts[i], out, nblocks * sizeof(double));
        for (size_t j = 0; j < nblocks; j++) {
            double sum = 0.0;

            for (size_t k = j * SUM_BLOCK; k < (j + 1) * SUM_BLOCK && k < counts[i]; k++)
                sum += (double)g[k] * (double)g[k];
            near(out[j], sum, 1e-13, "sum of squares", j);
        }
        free(g);
    }
}

struct hash_case {
    size_t bytes, cut; /* cut: where the second piece starts, a multiple of 8 */
};

static void run_hash(struct device *dev, const void *arg, void *ret)
{
    const struct hash_case *t = arg;
    float *x = numbers(COUNT, 400, -1.0f, 1.0f);
    const char *data = put(dev, x, t->bytes);
    uint64_t zero[2] = { 0, 0 }, *out = put(dev, zero, sizeof(zero));
    struct err err;

    assert_int_equal(dev->ops->hash(dev, out, data, t->cut, 7, 0, &err), 0);
    assert_int_equal(dev->ops->hash(dev, out, data + t->cut, t->bytes - t->cut, 7, t->cut / 8, &err), 0);
    get(dev, ret, out, sizeof(zero));
    free(x);
}

static void hashes(void **state)
{
    float *x = numbers(COUNT, 400, -1.0f, 1.0f);

    (void)state;
    for (size_t bytes = 0; bytes < COUNT; bytes = bytes * 3 + 1) {
        struct hash128 want = hash_bytes(x, bytes, 7), got;
        struct hash_case t = { bytes, 0 };

        same_on_all(run_hash, &t, &got, sizeof(got));
        assert_memory_equal(&got, &want, sizeof(got));
        t.cut = bytes / 16 * 8;
        same_on_all(run_hash, &t, &got, sizeof(got));
        assert_memory_equal(&got, &want, sizeof(got));
    }
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(trees), cmocka_unit_test(squares), cmocka_unit_test(hashes) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
