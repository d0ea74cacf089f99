/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/flat.h - flat arrays from one element type to another: weights
 * and bias to bf16, bf16 gradients to fp32. */
#pragma once
#include "cuda/cuda.h"
#include "cuda/vec.h"

/* ret[i] = x[i], plus the old ret[i] if ADD. */
template <typename T, typename S, int W, bool ADD> static __global__ void flat_kernel(T *ret, const S *x, size_t n)
{
    size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * W;
    float f[W], old[W];

    if (i >= n)
        return;
    vec_unpack(f, vec_load<W>(x + i));
    if (ADD) {
        vec_unpack(old, vec_load<W>(ret + i));
#pragma unroll
        for (int l = 0; l < W; l++)
            f[l] = old[l] + f[l];
    }
    vec_store(ret + i, f);
}

/* By vectors as far as addresses and numbers allow, then one by one. */
template <typename T, typename S, bool ADD> static void flat(struct device *dev, T *ret, const S *x, size_t n)
{
    const int w = VEC_WIDTH(bf16);
    size_t head = (uintptr_t)ret % 16 == 0 && (uintptr_t)x % 16 == 0 ? n / (size_t)w * (size_t)w : 0;

    if (head > 0)
        CUDA_LAUNCH((flat_kernel<T, S, w, ADD>), cuda_blocks(head / (size_t)w, VEC_THREADS), VEC_THREADS, cuda_device(dev)->stream, ret, x,
                    head);
    if (head < n)
        CUDA_LAUNCH((flat_kernel<T, S, 1, ADD>), cuda_blocks(n - head, VEC_THREADS), VEC_THREADS, cuda_device(dev)->stream, ret + head,
                    x + head, n - head);
}
