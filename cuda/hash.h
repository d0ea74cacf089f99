/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/hash.h - the hashes of four neighbouring blocks of numbers
 * (proto/hash/hash_keys.h) in a kernel of 256 threads. Thread t has the numbers 4 t .. 4 t + 3 of each block, so that
 * its keys are the same for all blocks. Integer sums need no order. */
#pragma once
#include "cuda/vec.h"
#include "proto/hash/hash_keys.h"

enum {
    HASH_THREADS = HASH_BLOCK / 4,
    HASH_WARPS = HASH_THREADS / 32,
    HASH_AT_ONCE = 4,                         /* blocks */
    HASH_NUMBERS = HASH_AT_ONCE * HASH_BLOCK, /* of a block of threads */
    HASH_SUMS = HASH_AT_ONCE * HASH_LANES     /* of a thread: block after block, its lanes */
};

DEVICE_FN uint64_t hash_word_of(float lower, float upper)
{
    return (uint64_t)__float_as_uint(upper) << 32 | __float_as_uint(lower);
}

/* Sums of the thread's four numbers of block `block`, which is known when the kernel is compiled. */
DEVICE_FN void hash_four(uint64_t (&sums)[HASH_SUMS], int block, const float (&v)[4])
{
    const uint64_t *key = HASH_KEY + 2 * threadIdx.x;
    uint64_t first = hash_word_of(v[0], v[1]), second = hash_word_of(v[2], v[3]);

    sums[block * HASH_LANES] = hash_product(first, key[0]) + hash_product(second, key[1]);
    sums[block * HASH_LANES + 1] = hash_product(first, key[1]) + hash_product(second, key[2]);
}

/* Lane l returns the sum of s[l / (32 / N)] over the warp, N a power of two: lanes hand half of their sums to each
 * other while they have several. */
template <int N> DEVICE_FN uint64_t hash_over_warp(const uint64_t (&s)[N])
{
    uint64_t part[N];

#pragma unroll
    for (int i = 0; i < N; i++)
        part[i] = s[i];
#pragma unroll
    for (int bit = 16, n = N; bit > 0; bit /= 2) {
        bool upper = n > 1 && (threadIdx.x & (unsigned)bit);
        int half = n > 1 ? n / 2 : 0;

#pragma unroll
        for (int i = 0; i < (half ? half : 1); i++) {
            uint64_t give = upper ? part[i] : part[i + half], keep = upper ? part[i + half] : part[i];

            part[i] = keep + __shfl_xor_sync(0xFFFFFFFFu, (unsigned long long)give, bit);
        }
        n = half ? half : 1;
    }
    return part[0];
}

/* Adds up the sums of all 256 threads and writes the first `count` of them. shared [N * HASH_WARPS]; every thread must
 * call it. */
template <int N> DEVICE_FN void hash_store(struct hash128 *to, unsigned count, const uint64_t (&s)[N], uint64_t *shared)
{
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t sum = hash_over_warp(s);

    if (lane % (32 / N) == 0)
        shared[lane / (32 / N) * HASH_WARPS + warp] = sum;
    __syncthreads();
    if (threadIdx.x >= count)
        return;
    sum = 0;
    for (unsigned w = 0; w < HASH_WARPS; w++)
        sum += shared[threadIdx.x * HASH_WARPS + w];
    to[threadIdx.x / HASH_LANES].lane[threadIdx.x % HASH_LANES] = sum;
}
