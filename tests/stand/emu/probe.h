/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/probe.h - kernels that test the emulator itself, right and
 * wrong ones (tests/device/test_emu.c). All pointers: device memory. */
#pragma once
#include <stdint.h>

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] = value, by `blocks` blocks of 64 threads. */
void probe_fill(cudaStream_t s, float *x, int blocks, float value);
/* dst[b] = sum of the 256 numbers of block b: shared memory, barriers, then a warp's shuffles. */
void probe_sum(cudaStream_t s, float *dst, const float *x, int blocks);
/* order[i] = the block (threads: of one block, the thread) that came i-th. counter: 0 before. */
void probe_block_order(cudaStream_t s, int *order, int *counter, int blocks);
void probe_thread_order(cudaStream_t s, int *order, int *counter, int threads);
/* dst[i] = the value that thread i reads from its neighbour's shared cell, with a barrier in between or (a bug)
 * without. */
void probe_neighbour(cudaStream_t s, int *dst, int threads, int barrier);
/* dst[8][32]: shfl from lane 3, up 1, down 2, xor 5, up 1 and down 1 in groups of 8, ballot of odd lanes, and a sum of
 * all lanes. */
enum { PROBE_ROWS = 8 };
void probe_warp(cudaStream_t s, uint32_t *dst);
/* dst[i]: lane i's shuffle with 20 lanes that live (the others have ended). */
void probe_partial_warp(cudaStream_t s, uint32_t *dst);
/* dst[0] = any, dst[1] = all, dst[2] = count of the threads with a number below `below`, of 100. */
void probe_votes(cudaStream_t s, int *dst, int below);
/* dst[0] = the bits of unwritten shared memory. */
void probe_unwritten(cudaStream_t s, uint32_t *dst);
/* Blocks of 4 x 3 x 2 threads in a grid of 2 x 3 x 2: dst[linear thread of the grid] = its number, made of its
 * indices. */
void probe_indices(cudaStream_t s, int *dst);

/* Wrong ones. */
void probe_two_barriers(cudaStream_t s, int *dst);           /* half of the threads wait at one barrier, half at another */
void probe_stuck(cudaStream_t s, int *dst);                  /* one lane at a barrier, the others want it in a shuffle */
void probe_shared_overrun(cudaStream_t s, int *dst, int at); /* writes element `at` of 64 */
void probe_too_many_threads(cudaStream_t s, int *dst);

/* bf16 as kernels have it. */
uint16_t probe_bf16_of(float x);
float probe_bf16_value(uint16_t bits);

#ifdef __cplusplus
}
#endif
