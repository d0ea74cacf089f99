/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/suppress.h - greedy suppression of boxes, best first, by one block of
 * threads. It takes 64 boxes at a time: first among themselves, then the kept ones suppress boxes behind them. The
 * result is the same as for one box after the other. */
#pragma once
#include "cuda/select.h"
#include "worker/kernels/delta.h"

enum { SUPPRESS_CHUNK = 64, SUPPRESS_SHARE = SELECT_THREADS / SUPPRESS_CHUNK };

/* box [n][4]; gone [n]: not 0 for a suppressed box, updated. The places of the kept boxes go to keep, at most `most`.
 * Returns their number. */
DEVICE_FN int block_suppress(const float *box, int n, int32_t *gone, float thresh, int most, int32_t *keep)
{
    SHARED(unsigned, over, SUPPRESS_CHUNK * 2);
    SHARED(unsigned, alive, 2);
    SHARED(int, kept, 1);

    if (threadIdx.x == 0)
        *kept = 0;
    __syncthreads();
    for (int base = 0; base < n && *kept < most; base += SUPPRESS_CHUNK) {
        int m = n - base < SUPPRESS_CHUNK ? n - base : SUPPRESS_CHUNK, row = (int)threadIdx.x / SUPPRESS_SHARE;

        if (threadIdx.x < SUPPRESS_CHUNK * 2)
            over[threadIdx.x] = 0;
        __syncthreads();
        for (int j = (int)threadIdx.x % SUPPRESS_SHARE; j < m && row < m; j += SUPPRESS_SHARE) {
            struct box a = box_at(box + (size_t)(base + row) * 4), b = box_at(box + (size_t)(base + j) * 4);

            if (j > row && box_suppresses(a, box_area(a), b, box_area(b), thresh))
                atomicOr(&over[row * 2 + j / 32], 1u << j % 32);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned dead[2] = { 0, 0 };

            alive[0] = alive[1] = 0;
            for (int i = 0; i < m && *kept < most; i++) {
                if (gone[base + i] || (dead[i / 32] >> i % 32 & 1u))
                    continue;
                keep[(*kept)++] = base + i;
                alive[i / 32] |= 1u << i % 32;
                dead[0] |= over[i * 2];
                dead[1] |= over[i * 2 + 1];
            }
        }
        __syncthreads();
        for (int j = base + m + (int)threadIdx.x; j < n; j += SELECT_THREADS) {
            struct box b = box_at(box + (size_t)j * 4);
            float area = box_area(b);

            for (int i = 0; i < m && !gone[j]; i++) {
                struct box a = box_at(box + (size_t)(base + i) * 4);

                if ((alive[i / 32] >> i % 32 & 1u) && box_suppresses(a, box_area(a), b, area, thresh))
                    gone[j] = 1;
            }
        }
        __syncthreads();
    }
    return *kept;
}
