/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/bf16.h - bf16 on every CPU device: storage of numbers, and
 * the arithmetic of convolutions.
 *
 * The order of additions is that of the tile unit of x86 (TDPBF16PS), bit for bit, so that CPUs with and without such a
 * unit train alike. The even and the odd products of a block of 32 are two chains of FMAs; their sum is added to the
 * old value. All of it is fp32 rounded to nearest even. Numbers below the smallest normal one count as zeros of their
 * sign, before and after each operation. The code here uses double, which needs neither FMAs nor a mode of the CPU. A
 * product of two bf16 is exact in double. Its sum with an fp32 number, rounded to double, still is on the right side of
 * every border of fp32. */
#pragma once
#include <stdint.h>

#include "worker/kernels/math.h"

enum { BF16_BLOCK = 32 }; /* products */

KERNEL_FN float bf16_value(uint16_t half)
{
    return bits_float((uint32_t)half << 16);
}

/* To nearest even; NaN becomes 0x7FFF, as on a GPU. Numbers below the smallest normal one are kept. */
KERNEL_FN uint16_t bf16_round(float x)
{
    uint32_t bits = float_bits(x), half = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;

    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : half);
}

/* To fp32; a result below the smallest normal number, if its exponent had no end, becomes a zero. */
KERNEL_FN float bf16_flushed(double x)
{
    return (float)(fabs(x) < 0x1p-126 - 0x1p-151 ? copysign(0.0, x) : x);
}

/* A factor; a number below the smallest normal one becomes a zero of its sign. */
KERNEL_FN float bf16_factor(uint16_t half)
{
    return bits_float((half & 0x7F80u ? (uint32_t)half : half & 0x8000u) << 16);
}

/* a * b + sum */
KERNEL_FN float bf16_fma(float a, float b, float sum)
{
    return bf16_flushed((double)a * (double)b + (double)sum);
}

KERNEL_FN float bf16_add(float a, float b)
{
    return bf16_flushed((double)a + (double)b);
}

/* sum + the block's products */
KERNEL_FN float bf16_dot(float sum, const uint16_t a[BF16_BLOCK], const uint16_t b[BF16_BLOCK])
{
    float even = 0.0f, odd = 0.0f;

    for (int i = 0; i < BF16_BLOCK; i += 2) {
        even = bf16_fma(bf16_factor(a[i]), bf16_factor(b[i]), even);
        odd = bf16_fma(bf16_factor(a[i + 1]), bf16_factor(b[i + 1]), odd);
    }
    return bf16_add(sum, bf16_add(even, odd));
}
