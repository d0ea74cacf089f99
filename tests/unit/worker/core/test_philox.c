/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_philox.c - uses: proto worker/core
 * The published vectors, and the distributions of uniforms and normals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "worker/core/philox.h"
#include "worker/kernels/math.h"
#include "worker/kernels/philox.h"

/* The three known-answer vectors of the authors' library for philox4x32, 10 rounds. */
static void known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], word[4];
    } t[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
          { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    uint32_t word[4];

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        philox4x32(t[i].counter, t[i].key, word);
        assert_memory_equal(word, t[i].word, sizeof(word));
    }
}

static void layout(void **state)
{
    struct philox_key k = { .seed = 0x299f31d0a4093822u, .step = 0x03707344, .op = 0x85a3, .shard = 0x1319, .substream = 0x8a2e };
    uint32_t word[4];

    (void)state;
    philox_block(&k, 0x08d3243f6a88u, word); /* counter words of the third vector */
    assert_int_equal(word[0], 0xd16cfe09);
    assert_int_equal(philox_word(&k, 4 * 0x08d3243f6a88u + 3), 0x24126ea1);
    assert_true(philox_op("flip") != philox_op("jitter"));
}

static void uniforms(void **state)
{
    struct philox_key k = { .seed = 1 };
    double sum = 0;

    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        float u = philox_uniform(&k, i);

        assert_true(u >= 0.0f && u < 1.0f && u * 16777216.0f == floorf(u * 16777216.0f));
        assert_true(philox_below(&k, i, 7) == (uint32_t)(u * 7.0f));
        assert_true(philox_below(&k, i, 1) == 0);
        sum += (double)u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.004);
}

static void normals(void **state)
{
    struct philox_key k = { .seed = 2 };
    double m[5] = { 0 };
    uint32_t word[4];
    enum { N = 100000 };

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        double x = philox_normal(&k, i), p = 1, want;

        philox_block(&k, i / 2, word);
        want = sqrt(-2 * log((word[i % 2 * 2] + 1.0) / 4294967296.0)) * cos(6.283185307179586477 * word[i % 2 * 2 + 1] / 4294967296.0);
        assert_true(fabs(x - want) < 3e-15 * (1 + fabs(want)));
        for (int j = 1; j < 5; j++)
            m[j] += (p *= x) / N;
    }
    assert_true(fabs(m[1]) < 0.012 && fabs(m[2] - 1) < 0.02 && fabs(m[3]) < 0.04 && fabs(m[4] - 3) < 0.12);
}

/* Weights are made of these numbers: every computer must compute the same bits. */
static void pinned(void **state)
{
    static const uint64_t bits[] = { 0xbff4ea394b785db3, 0xbfc74963dcfb5733, 0x3fd16e2178bd6367, 0xbfd1613331184bd0,
                                     0x3ff1afdb55ea8ea8, 0xbfabb6c7a7c28cd9, 0xbff9362b48c84ec4, 0xbfe2f47371dd23be };
    struct philox_key k = { .seed = 2 };

    (void)state;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        assert_int_equal(double_bits(philox_normal(&k, i)), bits[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(known_answers), cmocka_unit_test(layout), cmocka_unit_test(uniforms),
                                        cmocka_unit_test(normals), cmocka_unit_test(pinned) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
