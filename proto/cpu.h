/* proto/cpu.h - what this machine's CPU has, for who decides what a job runs in. */
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
