/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/hash/test_hash.c - the evidence hash: additive over
 * pieces, sensitive to every bit and place. uses: proto worker/core */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "proto/hash/hash.h"
#include "worker/core/philox.h"

enum { WORDS = 200 };

static uint64_t data[WORDS];

static int fill(void **state)
{
    struct philox_key k = { .seed = 9 };

    (void)state;
    for (uint64_t i = 0; i < WORDS; i++)
        data[i] = (uint64_t)philox_word(&k, 2 * i) << 32 | philox_word(&k, 2 * i + 1);
    return 0;
}

static int same(struct hash128 a, struct hash128 b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

static void pieces(void **state)
{
    struct hash128 whole = hash_bytes(data, sizeof(data), 3), h;

    (void)state;
    for (size_t cut = 0; cut <= WORDS; cut += 7) {
        h = (struct hash128){ { 0, 0 } };
        hash_add(h.lane, data + cut, (WORDS - cut) * 8, 3, cut); /* the second piece first */
        hash_add(h.lane, data, cut * 8, 3, 0);
        assert_true(same(h, whole));
    }
}

/* Every single-bit flip and every swap of two words shows in both lanes, and about half of the bits change. */
static void flips_and_swaps(void **state)
{
    struct hash128 whole = hash_bytes(data, sizeof(data), 3), h;
    int changed = 0;

    (void)state;
    for (size_t bit = 0; bit < WORDS * 64; bit += 13) {
        data[bit / 64] ^= (uint64_t)1 << bit % 64;
        h = hash_bytes(data, sizeof(data), 3);
        data[bit / 64] ^= (uint64_t)1 << bit % 64;
        assert_true(h.lane[0] != whole.lane[0] && h.lane[1] != whole.lane[1]);
        changed += __builtin_popcountll(h.lane[0] ^ whole.lane[0]);
    }
    assert_true(changed > 30 * (WORDS * 64 / 13) && changed < 34 * (WORDS * 64 / 13 + 1));
    for (size_t i = 0; i + 1 < WORDS; i++) {
        uint64_t t = data[i];

        data[i] = data[i + 1];
        data[i + 1] = t;
        h = hash_bytes(data, sizeof(data), 3);
        data[i + 1] = data[i];
        data[i] = t;
        assert_true(h.lane[0] != whole.lane[0] && h.lane[1] != whole.lane[1]);
    }
    assert_true(!same(whole, hash_bytes(data, sizeof(data), 4)));
}

static void tail(void **state)
{
    char padded[16] = "abcdefghijk";

    (void)state;
    assert_true(same(hash_bytes("abcdefghijk", 11, 1), hash_bytes(padded, 16, 1)));
    assert_true(!same(hash_bytes("abcdefghijk", 11, 1), hash_bytes("abcdefghijl", 11, 1)));
    assert_true(same(hash_bytes("", 0, 1), (struct hash128){ { 0, 0 } }));
}

static void names(void **state)
{
    (void)state;
    assert_true(hash_name("conv0.weight") != hash_name("conv1.weight"));
    assert_true(hash_name("") != hash_name("a") && hash_name("a") == hash_name("a"));
}

static void folds(void **state)
{
    struct hash128 a = hash_bytes("a", 1, 0), b = hash_bytes("b", 1, 0);

    (void)state;
    assert_true(!same(hash_fold(a, b), hash_fold(b, a)));
    assert_true(!same(hash_fold_u64(a, 1), hash_fold_u64(a, 2)));
    assert_true(hash_fold(a, b).lane[0] != hash_fold(a, b).lane[1]);
}

static void text(void **state)
{
    struct hash128 h = hash_bytes(data, sizeof(data), 3), back;
    char hex[33];

    (void)state;
    hash_hex((struct hash128){ { 0x0123456789abcdefu, 0xfedcba9876543210u } }, hex);
    assert_string_equal(hex, "0123456789abcdeffedcba9876543210");
    hash_hex(h, hex);
    assert_int_equal(hash_parse(hex, &back), 0);
    assert_true(same(h, back));
    assert_int_equal(hash_parse("0123", &back), -1);
    assert_int_equal(hash_parse("0123456789abcdeffedcba98765432100", &back), -1);
    assert_int_equal(hash_parse("0123456789abcdeffedcba987654321g", &back), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(pieces), cmocka_unit_test(flips_and_swaps), cmocka_unit_test(tail),
                                        cmocka_unit_test(names),  cmocka_unit_test(folds),           cmocka_unit_test(text) };

    return cmocka_run_group_tests(tests, fill, NULL);
}
