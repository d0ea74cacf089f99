/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/cpu.h - the features of this machine's CPU, for the choice of
 * the code that a job runs. */
#pragma once
#include <cpuid.h>
#include <stdbool.h>

/* Whether the CPU has a unit that multiplies matrices of bf16: AMX. The kernel decides whether it may be used, which is
 * seen only when a job starts. */
static inline bool cpu_has_bf16_unit(void)
{
    enum { LEAF = 7, BF16 = 1 << 22, TILE = 1 << 24 }; /* of EDX */
    unsigned a, b, c, d = 0;

    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & TILE) && (d & BF16);
}

/* Whether the CPU has all extensions that the builds for AVX2, and for AVX-512, use. */
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
