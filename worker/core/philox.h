/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/philox.h - random numbers as a pure function of a key. There is
 * no state, so resume, other rank counts and other thread counts draw the same numbers. Philox4x32-10 (Salmon et al.,
 * SC 2011); layout: specs determinism section 3.8. The block function is kernels/philox.h; this file gives hosts words,
 * uniforms and normals. It uses only + - * / and sqrt: no libm, the same bits everywhere. */
#pragma once
#include <stdint.h>

/* The purpose of a draw. Two purposes never share a key: op is philox_op("their name"). */
struct philox_key {
    uint64_t seed;
    uint32_t step; /* step - 1, or epoch */
    uint16_t op, shard, substream;
};

/* A 16-bit number for a purpose, from its name. */
uint16_t philox_op(const char *name);
/* The four words of block number `block` (48 bits): words of elements 4 * block .. 4 * block + 3. */
void philox_block(const struct philox_key *k, uint64_t block, uint32_t ret[4]);
/* Word of one element. */
uint32_t philox_word(const struct philox_key *k, uint64_t element);
/* [0, 1) in steps of 2^-24, exact. */
float philox_uniform(const struct philox_key *k, uint64_t element);
/* 0 .. n - 1 from one word by multiplication; n >= 1. No number is preferred by more than n / 2^32. */
uint32_t philox_below(const struct philox_key *k, uint64_t element, uint32_t n);
/* Standard normal (Box-Muller in double); element i takes two words of block i / 2. A key serves either normals or the
 * draws above. */
double philox_normal(const struct philox_key *k, uint64_t element);
