/* SPDX-License-Identifier: Apache-2.0 */ /* proto/hash/hash_mix.h - mixes words for the evidence hash. Integers only,
 * so the result is the same on every device; compiled by gcc and by nvcc. Specs determinism section 9.2. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HASH_FN static __host__ __device__ __forceinline__
#else
#define HASH_FN static inline __attribute__((always_inline, unused))
#endif

#define HASH_GAMMA 0x9E3779B97F4A7C15u /* 2^64 / golden ratio, odd */
#define HASH_MUL_0 0xD6E8FEB86659FD93u /* lane 0 */
#define HASH_MUL_1 0xBF58476D1CE4E5B9u /* lane 1: another odd multiplier */

HASH_FN uint64_t hash_mix(uint64_t x, uint64_t mul)
{
    x ^= x >> 32;
    x *= mul;
    x ^= x >> 32;
    x *= mul;
    return x ^ (x >> 32);
}

/* The summand of word j of a tensor in a lane's sum. */
HASH_FN uint64_t hash_word(uint64_t word, uint64_t kappa, uint64_t j, uint64_t mul)
{
    return hash_mix(word ^ (kappa + (j + 1) * HASH_GAMMA), mul);
}
