/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/probe.cu - see probe.h */
#include "tests/stand/emu/probe.h"

#include <cuda_bf16.h>

#define ALL 0xFFFFFFFFu

static __global__ void fill(float *x, float value)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

void probe_fill(cudaStream_t s, float *x, int blocks, float value)
{
    CUDA_LAUNCH(fill, blocks, 64, s, x, value);
}

static __global__ void sum(float *dst, const float *x)
{
    SHARED(float, part, 256);
    unsigned t = threadIdx.x;
    float v;

    part[t] = x[blockIdx.x * 256 + t];
    __syncthreads();
    for (unsigned half = 128; half >= 32; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t >= 32)
        return;
    v = part[t];
    for (int half = 16; half > 0; half /= 2)
        v += __shfl_down_sync(ALL, v, half);
    if (t == 0)
        dst[blockIdx.x] = v;
}

void probe_sum(cudaStream_t s, float *dst, const float *x, int blocks)
{
    CUDA_LAUNCH(sum, blocks, 256, s, dst, x);
}

static __global__ void order_of(int *order, int *counter, int me_is_block)
{
    order[atomicAdd(counter, 1)] = (int)(me_is_block ? blockIdx.x : threadIdx.x);
}

void probe_block_order(cudaStream_t s, int *order, int *counter, int blocks)
{
    CUDA_LAUNCH(order_of, blocks, 1, s, order, counter, 1);
}

void probe_thread_order(cudaStream_t s, int *order, int *counter, int threads)
{
    CUDA_LAUNCH(order_of, 1, threads, s, order, counter, 0);
}

template <bool barrier> static __global__ void neighbour(int *dst)
{
    SHARED(int, cell, 1024);
    unsigned t = threadIdx.x;

    cell[t] = (int)t;
    if (barrier)
        __syncthreads();
    dst[t] = cell[(t + 1) % blockDim.x];
}

void probe_neighbour(cudaStream_t s, int *dst, int threads, int barrier)
{
    if (barrier)
        CUDA_LAUNCH(neighbour<true>, 1, threads, s, dst);
    else
        CUDA_LAUNCH(neighbour<false>, 1, threads, s, dst);
}

static __global__ void warp(uint32_t *dst)
{
    unsigned t = threadIdx.x, total = t;

    dst[t] = __shfl_sync(ALL, 100 + t, 3);
    dst[32 + t] = __shfl_up_sync(ALL, 100 + t, 1);
    dst[64 + t] = __shfl_down_sync(ALL, 100 + t, 2);
    dst[96 + t] = __shfl_xor_sync(ALL, 100 + t, 5);
    dst[128 + t] = __shfl_up_sync(ALL, 100 + t, 1, 8);
    dst[160 + t] = __shfl_down_sync(ALL, 100 + t, 1, 8);
    dst[192 + t] = __ballot_sync(ALL, t % 2);
    for (int bit = 1; bit < 32; bit *= 2)
        total += __shfl_xor_sync(ALL, total, bit);
    dst[224 + t] = total;
}

void probe_warp(cudaStream_t s, uint32_t *dst)
{
    CUDA_LAUNCH(warp, 1, 32, s, dst);
}

static __global__ void partial_warp(uint32_t *dst)
{
    unsigned t = threadIdx.x;

    if (t >= 20)
        return;
    dst[t] = __shfl_down_sync(ALL, t, 4);
}

void probe_partial_warp(cudaStream_t s, uint32_t *dst)
{
    CUDA_LAUNCH(partial_warp, 1, 32, s, dst);
}

static __global__ void votes(int *dst, int below)
{
    bool mine = (int)threadIdx.x < below;
    int any = __syncthreads_or(mine), all = __syncthreads_and(mine), count = __syncthreads_count(mine);

    if (threadIdx.x == 0) {
        dst[0] = any;
        dst[1] = all;
        dst[2] = count;
    }
}

void probe_votes(cudaStream_t s, int *dst, int below)
{
    CUDA_LAUNCH(votes, 1, 100, s, dst, below);
}

static __global__ void unwritten(uint32_t *dst)
{
    SHARED(uint32_t, word, 8);

    dst[0] = word[3];
}

void probe_unwritten(cudaStream_t s, uint32_t *dst)
{
    CUDA_LAUNCH(unwritten, 1, 1, s, dst);
}

static __global__ void indices(int *dst)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned i = block * blockDim.x * blockDim.y * blockDim.z + t;

    dst[i] = (int)i;
}

void probe_indices(cudaStream_t s, int *dst)
{
    CUDA_LAUNCH(indices, dim3(2, 3, 2), dim3(4, 3, 2), s, dst);
}

static __global__ void two_barriers(int *dst)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    dst[threadIdx.x] = 1;
}

void probe_two_barriers(cudaStream_t s, int *dst)
{
    CUDA_LAUNCH(two_barriers, 1, 64, s, dst);
}

static __global__ void stuck(int *dst)
{
    if (threadIdx.x == 0)
        __syncthreads();
    else
        dst[threadIdx.x] = __shfl_sync(ALL, 1, 0);
}

void probe_stuck(cudaStream_t s, int *dst)
{
    CUDA_LAUNCH(stuck, 1, 32, s, dst);
}

static __global__ void shared_overrun(int *dst, int at)
{
    SHARED(int, array, 64);
    int *cell = array; /* the compiler cannot see the array's length */

    cell[at] = 1;
    dst[0] = cell[at];
}

void probe_shared_overrun(cudaStream_t s, int *dst, int at)
{
    CUDA_LAUNCH(shared_overrun, 1, 1, s, dst, at);
}

void probe_too_many_threads(cudaStream_t s, int *dst)
{
    CUDA_LAUNCH(stuck, 1, 1025, s, dst);
}

uint16_t probe_bf16_of(float x)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

float probe_bf16_value(uint16_t bits)
{
    return __bfloat162float(__ushort_as_bfloat16(bits));
}
