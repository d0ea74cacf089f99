/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/hashes.h - hashes of blocks and tensors by the words of
 * proto/hash/hash.h and proto/hash/hash_keys.h, number by number, without their table. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "proto/hash/hash.h"
#include "proto/hash/hash_mix.h"

static inline bool same_hash(struct hash128 a, struct hash128 b)
{
    return a.lane[0] == b.lane[0] && a.lane[1] == b.lane[1];
}

/* x [count], count <= 1024. */
static inline struct hash128 plain_block(const float *x, size_t count)
{
    struct hash128 h = { { 0, 0 } };
    uint32_t bits[1024] = { 0 };

    memcpy(bits, x, count * sizeof *x);
    for (uint64_t j = 0; j < 512; j++)
        for (uint64_t l = 0; l < 2; l++) {
            uint64_t key = hash_mix((j + l + 1) * HASH_GAMMA, HASH_MUL_0);
            uint32_t low = bits[2 * j] + (uint32_t)key, high = bits[2 * j + 1] + (uint32_t)(key >> 32);

            h.lane[l] += (uint64_t)low * high;
        }
    return h;
}

static inline struct hash128 plain_tensor(const float *x, size_t count, uint64_t kappa)
{
    struct hash128 h = { { 0, 0 } };

    for (size_t b = 0; b * 1024 < count; b++) {
        struct hash128 block = plain_block(x + b * 1024, count - b * 1024 < 1024 ? count - b * 1024 : 1024);

        h.lane[0] += hash_word(block.lane[0], kappa, b, HASH_MUL_0);
        h.lane[1] += hash_word(block.lane[1], kappa, b, HASH_MUL_1);
    }
    return h;
}
