/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/kernel.h - one body, two drivers: gcc (cpu/ loops over it)
 * and nvcc (cuda/ launches it) read every kernel body. */
#pragma once

#ifdef __CUDACC__
#define KERNEL_FN static __host__ __device__ __forceinline__
#else
#define KERNEL_FN static inline __attribute__((always_inline, unused))
#endif
