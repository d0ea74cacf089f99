/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/clock.h - the monotonic clock, which cannot be set. */
#pragma once
#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t clock_ms(void)
{
    return clock_ns() / 1000000;
}

static inline double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}
