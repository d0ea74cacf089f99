/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/bf16.h - bf16 cases of ops. Every device gets bf16 tensors,
 * except the first device not opened in bf16. This device gets the same numbers in fp32, and its results are rounded
 * once: an op in bf16 is defined like this. So the question stays that of devices.h: the same bits on all devices. */
#pragma once
#include "tests/device/devices.h"
#include "worker/kernels/bf16.h"

static inline uint16_t bf16_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof(u));
    if ((u & 0x7FFFFFFFu) > 0x7F800000u)
        return 0x7FFF; /* NaN */
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
}

/* The value of x after it was stored as dtype. */
static inline float stored(float x, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? bf16_value(bf16_bits(x)) : x;
}

/* How this device holds tensors of dtype. */
static inline enum dtype held_as(const struct device *dev, enum dtype dtype)
{
    return dtype == DTYPE_BF16 && (dev != devices.dev[0] || dev->dtype == DTYPE_BF16) ? DTYPE_BF16 : DTYPE_F32;
}

/* numbers() that dtype can hold. */
__attribute__((unused)) static float *numbers_of(enum dtype dtype, size_t n, uint64_t seed, float lo, float hi)
{
    float *x = numbers(n, seed, lo, hi);

    for (size_t i = 0; i < n; i++)
        x[i] = stored(x[i], dtype);
    return x;
}

/* put() of n numbers that dtype can hold, as dtype. */
__attribute__((unused)) static void *put_as(struct device *dev, const float *host, size_t n, enum dtype dtype)
{
    uint16_t *half;
    void *ret;

    if (dtype == DTYPE_F32)
        return put(dev, host, n * sizeof(*host));
    half = malloc((n ? n : 1) * sizeof(*half));
    assert_non_null(half);
    for (size_t i = 0; i < n; i++)
        half[i] = bf16_bits(host[i]);
    ret = put(dev, half, n * sizeof(*half));
    free(half);
    return ret;
}

/* The same, as the device holds them. */
__attribute__((unused)) static void *put_numbers(struct device *dev, const float *host, size_t n, enum dtype dtype)
{
    return put_as(dev, host, n, held_as(dev, dtype));
}

/* get() of an array that put_numbers() made and an op wrote. */
__attribute__((unused)) static void get_numbers(struct device *dev, float *host, const void *ptr, size_t n, enum dtype dtype)
{
    uint16_t *half = (uint16_t *)host;

    if (held_as(dev, dtype) == DTYPE_F32) {
        get(dev, host, ptr, n * sizeof(*host));
        for (size_t i = 0; i < n; i++)
            host[i] = stored(host[i], dtype);
        return;
    }
    get(dev, half, ptr, n * sizeof(*half));
    for (size_t i = n; i-- > 0;) {
        uint16_t bits;

        memcpy(&bits, (const char *)host + i * sizeof(bits), sizeof(bits));
        host[i] = bf16_value(bits);
    }
}
