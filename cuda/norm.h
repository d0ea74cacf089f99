/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/norm.h - shared by norm.cu and norm_sums.cu: shapes of the backward's
 * operands, and the number of shards in a launch. */
#pragma once
#include "cuda/vec.h"
#include "worker/kernels/norm.h"

#include <assert.h>

/* Results of norm_prepare for a shard, [c] each. */
struct norm_vectors {
    float *mean, *invstd, *scale, *shift;
};

DEVICE_FN void norm_put(const struct norm_vectors *to, int k, struct norm_channel n)
{
    to->mean[k] = n.mean;
    to->invstd[k] = n.invstd;
    to->scale[k] = n.scale;
    to->shift[k] = n.shift;
}

static inline int norm_at_once(int left)
{
    return left < SHARDS_AT_ONCE ? left : SHARDS_AT_ONCE;
}

static inline int norm_checked(const char *what, struct err *err)
{
    return cuda_check(cudaPeekAtLastError(), what, err);
}

/* Kernels count pixels in 32 bits. */
static inline void norm_check_pixels(const struct tensor *da, int nshards)
{
    for (int v = 0; v < nshards; v++)
        assert(tensor_pixels(&da[v]) < (size_t)1 << 31);
    (void)da, (void)nshards;
}

/* Can x and da of all shards be read 16 bytes at a time? */
static inline bool norm_wide(const struct operand *x, const struct tensor *da, int nshards)
{
    int w = vec_width(da[0].dtype);
    bool wide = true;

    for (int v = 0; v < nshards; v++)
        wide = wide && vec_fits(&x[v].x, w) && vec_fits(&da[v], w);
    return wide;
}
