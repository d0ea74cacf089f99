/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/select.h - choosing among many by number: keys of 64 bits
 * that all differ. The smallest are therefore one set in one order, however they are looked for. Specs determinism
 * section 3.7. */
#pragma once
#include "worker/kernels/math.h"
#include "worker/kernels/philox.h"

#define SELECT_NONE UINT64_MAX /* a key that no candidate has */

/* Larger numbers become larger integers; both zeros are equal, NaN is below all. */
KERNEL_FN uint32_t select_ordered(float f)
{
    uint32_t u = f == 0.0f ? 0u : float_bits(f);

    if (f != f)
        return 0;
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* Smaller is better: the larger score, then the lower index. */
KERNEL_FN uint64_t select_by_score(float score, uint32_t index)
{
    return (uint64_t)~select_ordered(score) << 32 | index;
}

/* A candidate's number in a draw; index < 2^32 - 1. */
KERNEL_FN uint64_t select_by_draw(uint32_t word, uint32_t index)
{
    return (uint64_t)word << 32 | index;
}

KERNEL_FN uint64_t select_draw(const struct philox_key *k, uint32_t index)
{
    uint32_t word[4];

    philox_block_of(k, index / 4, word);
    return select_by_draw(word[index % 4], index);
}

KERNEL_FN uint32_t select_index(uint64_t key)
{
    return (uint32_t)key;
}
