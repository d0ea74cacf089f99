/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/cpu.h - what this machine's CPU has, for who decides what a job runs in. */
#pragma once
#include <cpuid.h>
#include <stdbool.h>

/* A unit that multiplies matrices of bf16: AMX. Whether it may be used is the kernel's matter, and seen when a job starts. */
static inline bool cpu_has_bf16_unit(void)
{
    enum { LEAF = 7, BF16 = 1 << 22, TILE = 1 << 24 }; /* of EDX */
    unsigned a, b, c, d = 0;

    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & TILE) && (d & BF16);
}

/* What builds for AVX2 use, and those for AVX-512. */
static inline bool cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static inline bool cpu_has_avx512(void)
{
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
