/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/select.h - the smallest of many keys (kernels/select.h), sums and
 * places by one block of SELECT_THREADS threads. All threads of the block must call these together, and all get the
 * result. No result depends on the order in which threads run. */
#pragma once
#include "cuda/vec.h"
#include "worker/core/carve.h"
#include "worker/kernels/reduce.h"
#include "worker/kernels/select.h"

enum { SELECT_THREADS = 512, SELECT_WARPS = SELECT_THREADS / 32, SELECT_BINS = 256 };

/* Sum over the block of one number a thread; *ret_before: the sum of the threads before this one. */
DEVICE_FN int block_place(int mine, int *ret_before)
{
    SHARED(int, warp_sum, SELECT_WARPS);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, sum = mine, before = 0, all = 0;

    for (unsigned step = 1; step < 32; step *= 2) {
        int from = __shfl_up_sync(0xFFFFFFFFu, sum, step);

        sum += lane >= (int)step ? from : 0;
    }
    __syncthreads();
    if (lane == 31)
        warp_sum[warp] = sum;
    __syncthreads();
    for (int w = 0; w < SELECT_WARPS; w++) {
        before += w < warp ? warp_sum[w] : 0;
        all += warp_sum[w];
    }
    *ret_before = before + sum - mine;
    return all;
}

/* Counts the digits at `shift` of the keys that begin as prefix does. */
DEVICE_FN void count_digits(unsigned *count, const uint64_t *key, int n, uint64_t prefix, uint64_t mask, int shift)
{
    unsigned digit = 0, run = 0; /* neighbours are often equal: one atomic for all of them */

    for (int i = (int)threadIdx.x; i < SELECT_BINS; i += SELECT_THREADS)
        count[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS) {
        uint64_t k = key[i];
        unsigned d = (unsigned)(k >> shift) % SELECT_BINS;

        if (k == SELECT_NONE || (k & mask) != prefix)
            continue;
        if (d != digit && run > 0)
            atomicAdd(&count[digit], run);
        run = d == digit ? run + 1 : 1;
        digit = d;
    }
    if (run > 0)
        atomicAdd(&count[digit], run);
    __syncthreads();
}

/* A key that exactly k of the n keys do not exceed; if fewer keys differ from SELECT_NONE, a key that all of those do
 * not exceed. *ret_count: the number of these keys. */
DEVICE_FN uint64_t block_threshold(const uint64_t *key, int n, int k, int *ret_count)
{
    SHARED(unsigned, count, SELECT_BINS);
    SHARED(unsigned, cut, 3); /* digit, number of keys with a smaller one, number of keys with it */
    uint64_t prefix = 0, mask = 0;
    int all = 0, before;

    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS)
        all += key[i] != SELECT_NONE;
    all = block_place(all, &before);
    *ret_count = all < k ? all : k;
    if (all <= k)
        return SELECT_NONE - 1;
    for (int shift = 56; shift >= 0; shift -= 8) {
        count_digits(count, key, n, prefix, mask, shift);
        if (threadIdx.x == 0) {
            unsigned d = 0, below = 0;

            for (; d < SELECT_BINS - 1 && below + count[d] < (unsigned)k; d++)
                below += count[d];
            cut[0] = d;
            cut[1] = below;
            cut[2] = count[d];
        }
        __syncthreads();
        prefix |= (uint64_t)cut[0] << shift;
        mask |= (uint64_t)(SELECT_BINS - 1) << shift;
        k -= (int)cut[1];
        if (cut[2] == (unsigned)k)
            break;
        __syncthreads();
    }
    __syncthreads();
    return prefix | ~mask;
}

/* Sorts n keys, ascending; there must be room for the next power of two. */
DEVICE_FN void block_sort(uint64_t *key, int n)
{
    int size = 1;

    while (size < n)
        size *= 2;
    for (int i = n + (int)threadIdx.x; i < size; i += SELECT_THREADS)
        key[i] = SELECT_NONE;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = (int)threadIdx.x; i < size / 2; i += SELECT_THREADS) {
                int a = i / step * 2 * step + i % step, b = a + step;
                uint64_t x = key[a], y = key[b];

                if ((x > y) == ((a & run) == 0)) {
                    key[a] = y;
                    key[b] = x;
                }
            }
            __syncthreads();
        }
}

/* The keys at or below the threshold, sorted; their numbers if by_index. Returns how many. */
DEVICE_FN int block_select(uint64_t *ret, const uint64_t *key, int n, int k, bool by_index)
{
    SHARED(int, at, 1);
    int count;
    uint64_t threshold = block_threshold(key, n, k, &count);

    if (threadIdx.x == 0)
        *at = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += SELECT_THREADS)
        if (key[i] <= threshold && count > 0)
            ret[atomicAdd(at, 1)] = by_index ? select_index(key[i]) : key[i];
    __syncthreads();
    block_sort(ret, count);
    return count;
}

/* Room that block_select() needs for k. */
static inline size_t select_room(int k)
{
    size_t size = 1;

    while (size < (size_t)k)
        size *= 2;
    return size;
}

/* sum_in_lanes() of n numbers, in all threads. */
DEVICE_FN double block_lanes(const double *x, size_t stride, int n)
{
    SHARED(double, lane, SUM_LANES);
    double sum = 0.0, all[SUM_LANES];

    if (threadIdx.x < SUM_LANES)
        for (int i = (int)threadIdx.x; i < n; i += SUM_LANES)
            sum += x[(size_t)i * stride];
    __syncthreads();
    if (threadIdx.x < SUM_LANES)
        lane[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 0; i < SUM_LANES; i++)
        all[i] = lane[i];
    return sum_lanes(all);
}

/* carve() of working memory, aligned for all kernels. */
static inline void *cuda_carve(struct carve *c, size_t bytes)
{
    return carve_aligned(c, bytes, 256);
}
