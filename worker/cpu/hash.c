/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/hash.c - the hash of a block of numbers in vectors. Sums are of
 * integers, so their order is free. */
#include "worker/cpu/hash.h"

#include <string.h>

#include "proto/hash/hash_keys.h"
#include "worker/core/simd.h"

static struct hash128 hash_whole(const float *x)
{
    words lane0 = wzero(), lane1 = wzero();

#pragma GCC unroll 4
    for (int j = 0; j < HASH_BLOCK_WORDS; j += WW) {
        words w = wload(x + 2 * j);

        lane0 = wadd(lane0, wmul32(wadd32(w, wload(HASH_KEY + j))));
        lane1 = wadd(lane1, wmul32(wadd32(w, wload(HASH_KEY + j + 1))));
    }
    return (struct hash128){ { wsum(lane0), wsum(lane1) } };
}

struct hash128 cpu_hash_block(const float *x, size_t count)
{
    float padded[HASH_BLOCK];

    if (count == HASH_BLOCK)
        return hash_whole(x);
    memcpy(padded, x, count * sizeof *x);
    memset(padded + count, 0, (HASH_BLOCK - count) * sizeof *x);
    return hash_whole(padded);
}
