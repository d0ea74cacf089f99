/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/elem.h - numbers in memory, fp32 or bf16: floats in registers,
 * rounded once when they are stored. `half` (they are bf16) must be a constant wherever a loop of these is expanded;
 * ELEM_CALL() makes it a constant. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/core/simd.h"
#include "worker/core/tensor.h"
#include "worker/kernels/bf16.h"

/* fn(..., half) for numbers of dtype. */
#define ELEM_CALL(dtype, fn, ...) ((dtype) == DTYPE_BF16 ? fn(__VA_ARGS__, true) : fn(__VA_ARGS__, false))

SIMD_FN float elem_get(const void *row, ptrdiff_t k, bool half)
{
    return half ? bf16_value(((const uint16_t *)row)[k]) : ((const float *)row)[k];
}

SIMD_FN void elem_set(void *row, ptrdiff_t k, float x, bool half)
{
    if (half)
        ((uint16_t *)row)[k] = bf16_round(x);
    else
        ((float *)row)[k] = x;
}

/* Number k from p on. */
SIMD_FN void *elem_at(const void *p, ptrdiff_t k, bool half)
{
    return (char *)(uintptr_t)p + k * (ptrdiff_t)(half ? sizeof(uint16_t) : sizeof(float));
}

/* The first number of a pixel. */
SIMD_FN void *elem_row(const struct tensor *t, size_t pixel, bool half)
{
    return elem_at(t->data, (ptrdiff_t)(pixel * (size_t)t->stride), half);
}

/* act_store() of a number in memory. */
SIMD_FN void elem_store(float beta, void *row, ptrdiff_t k, float x, bool half)
{
    elem_set(row, k, beta != 0.0f ? fmaf(beta, elem_get(row, k, half), x) : x, half);
}

/* vload_n() and vstore_n() of numbers k ... of a row. */
SIMD_FN vec elem_load_n(const void *row, ptrdiff_t k, int n, bool half)
{
    return half ? vload_half_n((const uint16_t *)row + k, n) : vload_n((const float *)row + k, n);
}

SIMD_FN void elem_store_n(void *row, ptrdiff_t k, vec v, int n, bool half)
{
    if (half)
        vstore_half_n((uint16_t *)row + k, v, n);
    else
        vstore_n((float *)row + k, v, n);
}

/* The numbers as they are after storing. */
SIMD_FN vec elem_kept(vec v, bool half)
{
    return half ? vkept_half(v) : v;
}
