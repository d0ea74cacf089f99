/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_hash.c - uses: proto worker/core cpu cuda
 * Evidence hashes of blocks and of tensors: compared with golden hashes and the plain definition, for any division of
 * the work. */
#include "tests/device/devices.h"

#include <jansson.h>

#include "tests/device/hashes.h"

enum { BLOCK = 1024, MAX_TENSORS = 16, MAX_BLOCKS = 64, MAX_SQUARES = 20, MANY = 64 };

/* ---- the ops, over tensors that lie one after the other ---- */

struct hash_case {
    int n, shift; /* tensors; distance in floats of each from an aligned address */
    const float *data[MANY];
    size_t count[MANY];
    uint64_t kappa[MANY];
};

static size_t blocks_of(size_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

/* Hashes of all blocks, then of all tensors; a canary stands behind the blocks'. */
static void run_hashes(struct device *dev, const void *arg, void *ret)
{
    const struct hash_case *t = arg;
    struct hash_item item[MANY];
    struct hash_piece piece[MANY];
    struct hash128 *blocks, *tensors = put(dev, NULL, MANY * sizeof *tensors), *out = ret;
    const struct hash128 canary = { { 5, 6 } };
    size_t total = 0, at = 0;
    struct err err;

    for (int i = 0; i < t->n; i++)
        total += blocks_of(t->count[i]);
    blocks = put(dev, NULL, (total + 1) * sizeof *blocks);
    assert_int_equal(dev->ops->upload(dev, blocks + total, &canary, sizeof canary, &err), 0);
    for (int i = 0; i < t->n; at += blocks_of(t->count[i++])) {
        float *x = (float *)put(dev, NULL, (t->count[i] + (size_t)t->shift + 1) * sizeof *x) + t->shift;

        if (t->count[i])
            assert_int_equal(dev->ops->upload(dev, x, t->data[i], t->count[i] * sizeof *x, &err), 0);
        item[i] = (struct hash_item){ x, t->count[i], blocks + at };
        piece[i] = (struct hash_piece){ blocks + at, (int)blocks_of(t->count[i]), 0, t->kappa[i] };
    }
    assert_int_equal(dev->on->reduce->hash_blocks(dev, item, t->n, &err), 0);
    assert_int_equal(dev->on->reduce->hash_tensors(dev, tensors, piece, t->n, &err), 0);
    get(dev, out, blocks, (total + 1) * sizeof *out);
    get(dev, out + total + 1, tensors, (size_t)t->n * sizeof *out);
    assert_true(same_hash(out[total], canary));
}

/* ---- golden ---- */

static uint32_t golden_bits(uint32_t i, uint32_t seed)
{
    uint32_t x = (i + seed * 977u) * 0x9E3779B1u;

    x = (x ^ x >> 15) * 0x85EBCA6Bu;
    return x ^ x >> 13;
}

static float *golden_numbers(size_t count, uint32_t seed)
{
    float *x = malloc(count * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = golden_bits((uint32_t)i, seed);

        memcpy(x + i, &bits, sizeof bits);
    }
    return x;
}

static struct hash128 hash_at(const json_t *text)
{
    struct hash128 h;

    assert_int_equal(hash_parse(json_string_value(text), &h), 0);
    return h;
}

static void check_golden(const json_t *root, const struct hash_case *t)
{
    struct hash128 out[MAX_BLOCKS], *at = out, *tensor;
    size_t total = 0;

    for (int i = 0; i < t->n; i++)
        total += blocks_of(t->count[i]);
    same_on_all(run_hashes, t, out, (total + 1 + (size_t)t->n) * sizeof *out);
    tensor = out + total + 1;
    for (int i = 0; i < t->n; i++) {
        const json_t *want = json_array_get(root, (size_t)i), *blocks = json_object_get(want, "blocks");

        assert_int_equal(json_array_size(blocks), blocks_of(t->count[i]));
        for (size_t b = 0; b < json_array_size(blocks); b++)
            assert_true(same_hash(*at++, hash_at(json_array_get(blocks, b))));
        assert_true(same_hash(tensor[i], hash_at(json_object_get(want, "tensor"))));
        assert_true(same_hash(tensor[i], plain_tensor(t->data[i], t->count[i], t->kappa[i])));
    }
}

/* All in one call, at every address that floats may have. */
static void golden(void **state)
{
    json_t *root = json_load_file("tests/golden/hash.json", 0, NULL);
    struct hash_case t = { .n = (int)json_array_size(root) };
    char kappa[17];

    (void)state;
    assert_in_range(t.n, 1, MAX_TENSORS);
    for (int i = 0; i < t.n; i++) {
        const json_t *want = json_array_get(root, (size_t)i);

        t.count[i] = (size_t)json_integer_value(json_object_get(want, "count"));
        t.data[i] = golden_numbers(t.count[i], (uint32_t)json_integer_value(json_object_get(want, "seed")));
        t.kappa[i] = hash_name(json_string_value(json_object_get(want, "name")));
        snprintf(kappa, sizeof kappa, "%016llx", (unsigned long long)t.kappa[i]);
        assert_string_equal(kappa, json_string_value(json_object_get(want, "kappa")));
    }
    for (t.shift = 0; t.shift < 4; t.shift++)
        check_golden(root, &t);
    for (int i = 0; i < t.n; i++)
        free((void *)(uintptr_t)t.data[i]);
    json_decref(root);
}

/* ---- the shape of the work ---- */

/* Tails of every length are hashed as if zeros followed, and every device hashes tails of every length. */
static void tails(void **state)
{
    float *x = golden_numbers(BLOCK, 31), padded[BLOCK];
    struct hash128 out[2 * MANY + 1];

    (void)state;
    for (size_t first = 1; first < BLOCK; first += MANY) {
        struct hash_case t = { .n = first + MANY <= BLOCK ? MANY : (int)(BLOCK - first) };

        for (int i = 0; i < t.n; i++) {
            t.data[i] = x;
            t.count[i] = first + (size_t)i;
        }
        same_on_all(run_hashes, &t, out, (2 * (size_t)t.n + 1) * sizeof *out);
        for (int i = 0; i < t.n; i++) {
            memcpy(padded, x, sizeof padded);
            memset(padded + t.count[i], 0, (BLOCK - t.count[i]) * sizeof *padded);
            assert_true(same_hash(out[i], plain_block(padded, BLOCK)));
            assert_true(i == 0 || !same_hash(out[i], out[i - 1]));
        }
    }
    free(x);
}

/* Tensors without numbers, and no tensors. */
static void nothing(void **state)
{
    float *x = golden_numbers(BLOCK, 3);
    struct hash_case t = { .n = 4, .data = { x, x, x, x }, .count = { 0, 5, 0, 0 }, .kappa = { 1, 2, 3, 4 } };
    struct hash128 out[6];

    (void)state;
    same_on_all(run_hashes, &t, out, sizeof out);
    assert_true(same_hash(out[0], plain_block(x, 5)));
    assert_true(same_hash(out[2], (struct hash128){ { 0, 0 } }) && same_hash(out[5], (struct hash128){ { 0, 0 } }));
    assert_true(same_hash(out[3], plain_tensor(x, 5, 2)));
    t.n = 0;
    same_on_all(run_hashes, &t, out, sizeof *out);
    free(x);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

struct cut_case {
    const float *x;
    size_t count;
    int cut[3]; /* first blocks of the second, third and fourth piece */
};

/* Each piece hashed by calls of its own, the last one first. */
static void run_pieces(struct device *dev, const void *arg, void *ret)
{
    const struct cut_case *t = arg;
    const int from[] = { 0, t->cut[0], t->cut[1], t->cut[2], (int)blocks_of(t->count) };
    const float *x = put(dev, t->x, t->count * sizeof *x);
    struct hash128 *sums = put(dev, NULL, 4 * sizeof *sums), out[4], whole = { { 0, 0 } };
    struct err err;

    for (int i = 3; i >= 0; i--) {
        size_t at = least((size_t)from[i] * BLOCK, t->count), end = least((size_t)from[i + 1] * BLOCK, t->count);
        struct hash128 *blocks = put(dev, NULL, ((size_t)(from[i + 1] - from[i]) + 1) * sizeof *blocks);

        assert_int_equal(dev->on->reduce->hash_blocks(dev, &(struct hash_item){ x + at, end - at, blocks }, 1, &err), 0);
        assert_int_equal(
            dev->on->reduce->hash_tensors(dev, sums + i, &(struct hash_piece){ blocks, from[i + 1] - from[i], from[i], 99 }, 1, &err), 0);
    }
    get(dev, out, sums, sizeof out);
    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 2; l++)
            whole.lane[l] += out[i].lane[l];
    memcpy(ret, &whole, sizeof whole);
}

static void pieces(void **state)
{
    struct cut_case t = { .count = 10 * BLOCK + 77 };
    float *x = golden_numbers(t.count, 8);
    struct hash128 got, want = plain_tensor(x, t.count, 99);

    (void)state;
    t.x = x;
    for (t.cut[0] = 0; t.cut[0] <= 11; t.cut[0] += 3)
        for (t.cut[1] = t.cut[0]; t.cut[1] <= 11; t.cut[1] += 2)
            for (t.cut[2] = t.cut[1]; t.cut[2] <= 11; t.cut[2] += 5) {
                same_on_all(run_pieces, &t, &got, sizeof got);
                assert_true(same_hash(got, want));
            }
    free(x);
}

/* More blocks than a block of threads has threads. */
static void large(void **state)
{
    const size_t count = 600 * BLOCK + 3;
    float *x = golden_numbers(count, 12);
    const struct hash_case t = { .n = 1, .data = { x }, .count = { count }, .kappa = { 41 } };
    static struct hash128 out[603];

    (void)state;
    same_on_all(run_hashes, &t, out, sizeof out);
    assert_true(same_hash(out[602], plain_tensor(x, count, 41)));
    free(x);
}

/* Numbers that compare as equal, or as nothing. */
static void raw_bits(void **state)
{
    static const uint32_t pairs[][2] = {
        { 0, 0x80000000u }, { 0x7FC00000u, 0x7FC00001u }, { 0x7FC00000u, 0xFFC00000u }, { 0x7F800001u, 0x7FC00001u }, { 1, 0 }
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        float x[2][9] = { { 0 } };
        const struct hash_case t = { .n = 2, .data = { x[0], x[1] }, .count = { 9, 9 } };
        struct hash128 out[5];

        for (int k = 0; k < 2; k++)
            memcpy(x[k] + 4, &pairs[i][k], sizeof **x);
        same_on_all(run_hashes, &t, out, sizeof out);
        for (int k = 0; k < 2; k++)
            assert_true(same_hash(out[k], plain_block(x[k], 9)));
        assert_true(out[0].lane[0] != out[1].lane[0] && out[0].lane[1] != out[1].lane[1]);
    }
}

/* ---- beside sums of squares ---- */

struct squares_case {
    const float *g;
    size_t count;
    int shift;
};

struct squares_result {
    double with[MAX_SQUARES], without[MAX_SQUARES]; /* of calls with hashes and without */
    struct hash128 hashes[MAX_SQUARES];
};

static void run_squares(struct device *dev, const void *arg, void *ret)
{
    const struct squares_case *t = arg;
    struct squares_result *r = memset(ret, 0, sizeof *r);
    size_t n = blocks_of(t->count);
    float *g = (float *)put(dev, NULL, (t->count + (size_t)t->shift) * sizeof *g) + t->shift;
    double *with = put(dev, NULL, n * sizeof *with), *without = put(dev, NULL, n * sizeof *without);
    struct hash128 *hashes = put(dev, NULL, (n + 1) * sizeof *hashes), behind;
    struct err err;

    assert_int_equal(dev->ops->upload(dev, g, t->g, t->count * sizeof *g, &err), 0);
    assert_int_equal(dev->on->reduce->sum_squares(dev, with, hashes, g, t->count, &err), 0);
    assert_int_equal(dev->on->reduce->sum_squares(dev, without, NULL, g, t->count, &err), 0);
    get(dev, r->with, with, n * sizeof *with);
    get(dev, r->without, without, n * sizeof *without);
    get(dev, r->hashes, hashes, n * sizeof *hashes);
    get(dev, &behind, hashes + n, sizeof behind);
    assert_true(same_hash(behind, (struct hash128){ { 0, 0 } }));
}

static void check_squares(const struct squares_case *t)
{
    static struct squares_result out;

    assert_in_range(blocks_of(t->count), 1, MAX_SQUARES);
    same_on_all(run_squares, t, &out, sizeof out);
    assert_memory_equal(out.with, out.without, sizeof out.with);
    for (size_t b = 0; b < blocks_of(t->count); b++)
        assert_true(same_hash(out.hashes[b], plain_block(t->g + b * BLOCK, least(t->count - b * BLOCK, BLOCK))));
}

static void squares(void **state)
{
    static const size_t counts[] = { 1, 2, 15, 17, 511, 512, 513, 1023, 1024, 1025, 2048, 8192, 8193, 20001 };

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *g = numbers(counts[i], 310 + i, -2.0f, 2.0f);

        check_squares(&(struct squares_case){ g, counts[i], 0 });
        check_squares(&(struct squares_case){ g, counts[i], 1 });
        free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(golden), cmocka_unit_test(tails), cmocka_unit_test(nothing),
                                        cmocka_unit_test(pieces), cmocka_unit_test(large), cmocka_unit_test(raw_bits),
                                        cmocka_unit_test(squares) };

    return cmocka_run_group_tests_name("hash", tests, open_devices, close_devices);
}
