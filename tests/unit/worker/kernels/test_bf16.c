/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/kernels/test_bf16.c - how numbers become bf16, and the
 * order in which convolutions add. uses: proto */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "worker/kernels/bf16.h"

static uint32_t bits(float x)
{
    return float_bits(x);
}

static void rounds_to_even(void **state)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } of[] = {
        { 0x3F800000u, 0x3F80 }, { 0x3F808000u, 0x3F80 }, { 0x3F808001u, 0x3F81 }, { 0x3F818000u, 0x3F82 }, { 0x3F817FFFu, 0x3F81 },
        { 0xBF818000u, 0xBF82 }, { 0x7F7FFFFFu, 0x7F80 }, { 0x7F7F7FFFu, 0x7F7F }, { 0x7F800000u, 0x7F80 }, { 0xFF800000u, 0xFF80 },
        { 0x7F800001u, 0x7FFF }, { 0xFFC00000u, 0x7FFF }, { 0xFFFFFFFFu, 0x7FFF }, { 0x80000000u, 0x8000 }, { 0x00008000u, 0x0000 },
        { 0x00018000u, 0x0002 }, { 0x007FFFFFu, 0x0080 }, { 0x80418000u, 0x8042 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_int_equal(bf16_round(bits_float(of[i].from)), of[i].to);
    for (uint32_t half = 0; half <= 0xFFFF; half++)
        assert_int_equal(bf16_round(bf16_value((uint16_t)half)), (half & 0x7FFF) > 0x7F80 ? 0x7FFF : half);
}

/* A block of zeros but for some products. */
struct block {
    uint16_t a[BF16_BLOCK], b[BF16_BLOCK];
};

static struct block products(int n, const int *at, const float *a, const float *b)
{
    struct block r;

    memset(&r, 0, sizeof r);
    for (int i = 0; i < n; i++) {
        r.a[at[i]] = bf16_round(a[i]);
        r.b[at[i]] = bf16_round(b[i]);
    }
    return r;
}

static float dot(float sum, int n, const int *at, const float *a, const float *b)
{
    struct block r = products(n, at, a, b);

    return bf16_dot(sum, r.a, r.b);
}

/* Even and odd products are chains of their own; their sum is added once to the earlier value. */
static void order(void **state)
{
    const float big = 0x1p24f;

    (void)state;
    /* one after the other 2^24 + 1 + 1 would stay at 2^24; as chains 1 + 1 is added at once */
    assert_true(dot(0, 3, (int[]){ 0, 1, 3 }, (float[]){ big, 1, 1 }, (float[]){ 1, 1, 1 }) == big + 2);
    assert_true(dot(0, 3, (int[]){ 0, 2, 4 }, (float[]){ big, 1, 1 }, (float[]){ 1, 1, 1 }) == big);
    assert_true(dot(big, 2, (int[]){ 0, 1 }, (float[]){ 1, 1 }, (float[]){ 1, 1 }) == big + 2);
    assert_true(dot(-big, 3, (int[]){ 0, 2, 1 }, (float[]){ 1, big, 0 }, (float[]){ 1, 1, 1 }) == 0);
    /* a product is not rounded before it is added */
    assert_true(bf16_fma(0x1.FEp0f, 0x1.FEp0f, -0x1.FC02p1f) == 0.0f);
}

/* fmaf() where nothing is too small. */
static void fused(void **state)
{
    uint32_t seed = 7;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        uint32_t r[3];
        float a, b, c;

        for (int k = 0; k < 3; k++)
            r[k] = seed = seed * 1664525u + 1013904223u;
        a = bf16_value((uint16_t)((r[0] >> 16 & 0x80FFu) | (0x6Fu + (r[0] >> 8 & 31u)) << 7));
        b = bf16_value((uint16_t)((r[1] >> 16 & 0x80FFu) | (0x6Fu + (r[1] >> 8 & 31u)) << 7));
        c = bits_float((r[2] & 0x807FFFFFu) | (0x50u + (r[0] & 63u)) << 23);
        assert_int_equal(bits(bf16_fma(a, b, c)), bits(fmaf(a, b, c)));
    }
}

static void too_small(void **state)
{
    const float least = 0x1p-126f;

    (void)state;
    assert_int_equal(bits(bf16_factor(0x0001)), 0);
    assert_int_equal(bits(bf16_factor(0x807F)), 0x80000000u);
    assert_int_equal(bits(bf16_factor(0x0080)), bits(least));
    /* products */
    assert_int_equal(bits(bf16_fma(0x1p-63f, 0x1p-63f, 0)), bits(least));
    assert_int_equal(bits(bf16_fma(0x1p-63f, 0x1p-64f, 0)), 0);
    assert_int_equal(bits(bf16_fma(-0x1p-63f, 0x1p-64f, 0)), 0x80000000u);
    /* they count in a sum that is not */
    assert_int_equal(bits(bf16_fma(0x1p-63f, 0x1p-64f, least)), bits(0x1.8p-126f));
    assert_int_equal(bits(bf16_fma(-0x1p-63f, 0x1p-64f, least)), 0);
    assert_int_equal(bits(bf16_add(0x1.8p-126f, -least)), 0);
    assert_int_equal(bits(bf16_add(least, -0x1.8p-126f)), 0x80000000u);
    /* a number is small if it rounds to less than the least in 24 bits: half a bit below it rounds up */
    assert_int_equal(bits(bf16_flushed(0x1p-126 - 0x1p-151)), bits(least));
    assert_int_equal(bits(bf16_flushed(0x1p-126 - 0x1p-150)), 0);
    assert_int_equal(bits(bf16_flushed(-0x1p-126 + 0x1p-150)), 0x80000000u);
    assert_int_equal(bits(bf16_add(-0.0f, -0.0f)), 0x80000000u);
    /* a block of numbers that are too small is one of zeros */
    assert_int_equal(bits(dot(1, 2, (int[]){ 0, 1 }, (float[]){ 0x1p-130f, 0x1p-127f }, (float[]){ 0x1p100f, 0x1p100f })), bits(1));
}

static void not_finite(void **state)
{
    const float inf = (float)INFINITY;

    (void)state;
    assert_true(dot(0, 1, (int[]){ 5 }, (float[]){ inf }, (float[]){ 2 }) == inf);
    assert_true(isnan(dot(0, 1, (int[]){ 5 }, (float[]){ inf }, (float[]){ 0 })));
    assert_true(isnan(dot(0, 2, (int[]){ 0, 1 }, (float[]){ inf, -inf }, (float[]){ 1, 1 })));
    assert_true(isnan(dot((float)NAN, 0, NULL, NULL, NULL)));
    assert_true(dot(0, 2, (int[]){ 0, 2 }, (float[]){ 0x1p127f, 0x1p127f }, (float[]){ 2, 1 }) == inf);
    /* a product beyond fp32 that the chain brings back is not infinite */
    assert_true(dot(0, 2, (int[]){ 0, 2 }, (float[]){ -0x1p127f, 0x1p127f }, (float[]){ 1, 2 }) == 0x1p127f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_to_even), cmocka_unit_test(order),      cmocka_unit_test(fused),
        cmocka_unit_test(too_small),      cmocka_unit_test(not_finite),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
