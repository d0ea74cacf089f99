/* SPDX-License-Identifier: Apache-2.0 */ /* proto/hash/hash_keys.h - the hash of a block of numbers. A block has 1024
 * fp32 elements in 512 words of 64 bits (element 2 j in the lower half of word j). A tensor's last block is hashed as
 * if zeros followed. The hash is NH with a Toeplitz key: lane l is the sum over j of (lo(w) + lo(k)) * (hi(w) + hi(k)),
 * k = HASH_KEY[j + l], halves added mod 2^32 and products mod 2^64. It takes one multiplication for each word and lane,
 * which every vector unit has. Sources: Black et al. 1999, UMAC: Fast and secure message authentication; RFC 4418
 * section 5.2. Integers only; compiled by gcc and by nvcc. Host code of nvcc has no table. */
#pragma once
#include "proto/hash/hash_mix.h"

enum { HASH_BLOCK = 1024, HASH_BLOCK_WORDS = HASH_BLOCK / 2, HASH_LANES = 2, HASH_KEYS = HASH_BLOCK_WORDS + HASH_LANES - 1 };

#ifdef __CUDACC__
#define HASH_TABLE static __device__ const
#else
#define HASH_TABLE static const __attribute__((unused))
#endif

/* HASH_KEY[j] = hash_mix((j + 1) * HASH_GAMMA, HASH_MUL_0), as a constant expression. */
#define HASH_ROUND(x)    (((x) ^ (x) >> 32) * HASH_MUL_0)
#define HASH_LAST(x)     ((x) ^ (x) >> 32)
#define HASH_KEY_OF(j)   HASH_LAST(HASH_ROUND(HASH_ROUND(((j) + 1u) * HASH_GAMMA)))
#define HASH_KEYS_4(j)   HASH_KEY_OF(j), HASH_KEY_OF(j + 1), HASH_KEY_OF(j + 2), HASH_KEY_OF(j + 3)
#define HASH_KEYS_16(j)  HASH_KEYS_4(j), HASH_KEYS_4(j + 4), HASH_KEYS_4(j + 8), HASH_KEYS_4(j + 12)
#define HASH_KEYS_64(j)  HASH_KEYS_16(j), HASH_KEYS_16(j + 16), HASH_KEYS_16(j + 32), HASH_KEYS_16(j + 48)
#define HASH_KEYS_256(j) HASH_KEYS_64(j), HASH_KEYS_64(j + 64), HASH_KEYS_64(j + 128), HASH_KEYS_64(j + 192)
HASH_TABLE uint64_t HASH_KEY[HASH_KEYS] __attribute__((aligned(64))) = { HASH_KEYS_256(0u), HASH_KEYS_256(256u), HASH_KEY_OF(512u) };

/* The summand of a word of a block in a lane's sum. */
HASH_FN uint64_t hash_product(uint64_t word, uint64_t key)
{
    uint32_t lo = (uint32_t)word + (uint32_t)key, hi = (uint32_t)(word >> 32) + (uint32_t)(key >> 32);

    return (uint64_t)lo * hi;
}
