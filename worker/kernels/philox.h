/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/philox.h - Philox4x32-10, a counter-based generator: four
 * words from a 128-bit counter and a 64-bit key. Source: Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as
 * easy as 1, 2, 3. */
#pragma once
#include <stdint.h>

#include "worker/core/philox.h"
#include "worker/kernels/kernel.h"

KERNEL_FN void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t ret[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    ret[0] = c0;
    ret[1] = c1;
    ret[2] = c2;
    ret[3] = c3;
}

/* The words of block `block` of a key, as philox_block() gives them: the layout of specs determinism section 3.8. */
KERNEL_FN void philox_block_of(const struct philox_key *k, uint64_t block, uint32_t ret[4])
{
    uint32_t key[2] = { (uint32_t)k->seed, (uint32_t)(k->seed >> 32) };
    uint32_t counter[4] = { (uint32_t)block, (uint32_t)k->op << 16 | (uint32_t)(block >> 32 & 0xFFFFu),
                            (uint32_t)k->shard << 16 | k->substream, k->step };

    philox4x32(counter, key, ret);
}

/* [0, 1), exact. */
KERNEL_FN float philox_to_uniform(uint32_t word)
{
    return (float)(word >> 8) * 5.9604644775390625e-8f;
}

/* Dropout of four numbers, of elements 4 * block and on, each dropped with probability rate: the factor of each. */
KERNEL_FN void philox_dropout(const struct philox_key *k, uint64_t block, float rate, float ret[4])
{
    uint32_t word[4];

    philox_block_of(k, block, word);
    for (int i = 0; i < 4; i++)
        ret[i] = philox_to_uniform(word[i]) < rate ? 0.0f : 1.0f / (1.0f - rate);
}
