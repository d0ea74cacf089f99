/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cuda.h - the CUDA device: declarations shared by the files of the
 * plugin.
 *
 * device.c (streams, marks) and memory.c implement struct device_ops. Each operation is a function
 * cuda_<family>_<name>() in the file of its family (conv.cu, norm.cu, map.cu ...); worker/ops has its contract. A
 * struct cuda_device is one stream with scratch memory of its own on the one GPU this process sees. Launchers return
 * the launch error and never wait; kernels hold the bodies of worker/kernels/ and the loop around them.
 *
 * Each output has one writer and a fixed order of additions; there are no floating-point atomics. Grids are cut by the
 * data's shape alone, never by the number of multiprocessors. Bits of a shard in TIER_WORLD depend on that shard alone.
 *
 * nvcc reads the .cu files. So does g++, with the headers of tests/stand/emu in front, for the tests that run without a
 * GPU. The files therefore use the macros below instead of <<<>>> and __shared__, and only templates and overloads of
 * C++. */
#pragma once
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"

/* Kernel launch. Arguments are copied by value; at most 4 KiB of them. The emulator of tests/stand/emu has its own
 * versions of these two macros. */
#ifndef CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
/* In a kernel: an array `name` of `count` (a constant) elements, shared by the block, contents undefined. */
#define SHARED(type, name, count) __shared__ type name[count]
#endif

/* Number of shards that pass their pointers in the arguments of one launch; more shards need more launches. */
enum { SHARDS_AT_ONCE = 16 };

/* The size of a pixel is a multiple of so many bytes. Kernels read so many at once, and cuBLASLt has its fast kernels
 * for them. */
enum { CUDA_ROW = 16 };

struct engine;
struct staging;

struct cuda_device {
    struct device dev; /* must stay first */
    cudaStream_t stream;
    enum precision precision;
    enum tier tier;
    int compute; /* compute capability, 90 for 9.0 */
    int multiprocessors;
    struct engine *engine; /* cuda/engine.h: NULL until the first convolution */
    struct staging *staging;
    void *scratch;
    size_t scratch_bytes;
};

static inline struct cuda_device *cuda_device(struct device *dev)
{
    return (struct cuda_device *)dev;
}

/* Returns 0, or ERR_DEVICE with the op's name and the error's name and text. what: the op, for example
 * "norm_bwd_reduce". A launcher ends with `return cuda_check(cudaPeekAtLastError(), "act_fwd", err);`. The text of an
 * error that poisons the context says so. */
int cuda_check(cudaError_t e, const char *what, struct err *err);

/* Working memory of the op that is queued now, 256-byte aligned, contents undefined; the next call may hand out the
 * same memory to later work of the same stream. Grown only, so the steady state allocates nothing. An op takes it in
 * one piece, once. NULL: out of memory, *err names op and size. */
void *cuda_scratch(struct device *dev, size_t bytes, const char *what, struct err *err);
/* Copies a small host table (pointers, sizes) at once, for the kernel that is queued next. The copy stays in device
 * memory until later work of this stream is done with it. */
const void *cuda_table(struct device *dev, const void *host, size_t bytes, struct err *err);

/* Blocks of `per` items that cover n, at least 1. */
static inline unsigned cuda_blocks(size_t n, unsigned per)
{
    return n == 0 ? 1u : (unsigned)((n + per - 1) / per);
}

/* norm_sums.cu, for conv.cu: count, mean, M2 per shard and channel of y, like conv_fwd's stats. */
int cuda_norm_stats(struct device *dev, double *const *stats, const struct tensor *y, int nshards, struct err *err);

/* The functions of struct device_ops. */
/* clang-format off */
#define CUDA_MACHINE(X)                                                                                                                    \
    X(available) X(open) X(close) X(info) X(set_tier) X(sync) X(mark_new) X(mark_free) X(mark) X(wait) X(reach)                            \
    X(alloc) X(free) X(host_alloc) X(host_free) X(upload) X(download) X(copy_async) X(zero) X(link_id) X(link_open) X(param_release)
/* clang-format on */
#define X(row) __typeof__(*((struct device_ops *)0)->row) cuda_##row;
CUDA_MACHINE(X)
#undef X

/* Declares cuda_conv_fwd() and all other operations. */
#define X(family, name, params, args) int cuda_##family##_##name params;
#define ROWS(family, LIST)            LIST(X)
FAMILIES_OF_ALL(ROWS)
FAMILIES_OF_CUDA(ROWS)
#undef ROWS
#undef X
/* Opens a queue of work on the GPU. The caller sets the tables ops and on of its device. */
int cuda_queue_open(int index, const struct device_options *opt, struct cuda_device **ret_d, struct err *err);

#ifdef __cplusplus
}
#endif
