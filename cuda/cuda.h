/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cuda.h - the CUDA device: what the files of the plugin share.
 *
 * The machine of struct device_ops is in device.c (streams, marks) and memory.c; each operation is a function cuda_<family>_<name>() in the file of
 * its family (conv.cu, norm.cu, map.cu ...), its contract stands in worker/ops. A struct cuda_device is one stream with scratch memory of its own on the one
 * GPU this process sees. Launchers return the launch error and never wait; kernels hold the bodies of worker/kernels/ and the loop around
 * them.
 *
 * One writer per output, fixed order, no floating-point atomics; grids are cut by the data's shape alone, never by the number of
 * multiprocessors. Bits of a shard in TIER_WORLD depend on that shard alone.
 *
 * .cu files are read by nvcc and, for the tests that run without a GPU, by g++ with the headers of tests/stand/emu in front: they use the macros
 * below instead of <<<>>> and __shared__, and of C++ only templates and overloads. */
#pragma once
#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"

/* Kernel launch. Arguments are copied by value; at most 4 KiB of them. The emulator of tests/stand/emu brings its own two. */
#ifndef CUDA_LAUNCH
#define CUDA_LAUNCH(kernel, grid, block, stream, ...) kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
/* In a kernel: an array `name` of `count` (a constant) elements, shared by the block, contents undefined. */
#define SHARED(type, name, count) __shared__ type name[count]
#endif

/* Shards whose pointers travel in the arguments of one launch; more shards are more launches. */
enum { SHARDS_AT_ONCE = 16 };

/* Bytes that pixels are a multiple of: what kernels read at once, and what cuBLASLt has its fast kernels for. */
enum { CUDA_ROW = 16 };

struct engine;
struct staging;

struct cuda_device {
    struct device dev; /* stays first */
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

/* 0, or ERR_DEVICE with the op's name, the error's name and text. what: the op, as "norm_bwd_reduce". A launcher ends with
 * `return cuda_check(cudaPeekAtLastError(), "act_fwd", err);`. Errors that poison the context say so. */
int cuda_check(cudaError_t e, const char *what, struct err *err);

/* Working memory of the op that is queued now, 256-byte aligned, contents undefined; the next call may hand out the same memory to later
 * work of the same stream. Grown only, so the steady state allocates nothing. An op takes it in one piece, once. NULL: out of memory, *err
 * names op and size. */
void *cuda_scratch(struct device *dev, size_t bytes, const char *what, struct err *err);
/* A small host table (pointers, sizes) for the kernel that is queued next: copied at once, in device memory until later work of this stream
 * is done with it. */
const void *cuda_table(struct device *dev, const void *host, size_t bytes, struct err *err);

/* Blocks of `per` items that cover n, at least 1. */
static inline unsigned cuda_blocks(size_t n, unsigned per)
{
    return n == 0 ? 1u : (unsigned)((n + per - 1) / per);
}

/* norm_sums.cu, for conv.cu: count, mean, M2 per shard and channel of y, as conv_fwd's stats. */
int cuda_norm_stats(struct device *dev, double *const *stats, const struct tensor *y, int nshards, struct err *err);

/* Its machine. */
/* clang-format off */
#define CUDA_MACHINE(X)                                                                                                                    \
    X(available) X(open) X(close) X(info) X(set_tier) X(sync) X(mark_new) X(mark_free) X(mark) X(wait) X(reach)                            \
    X(alloc) X(free) X(host_alloc) X(host_free) X(upload) X(download) X(copy_async) X(zero) X(link_id) X(link_open) X(param_release)
/* clang-format on */
#define X(row) __typeof__(*((struct device_ops *)0)->row) cuda_##row;
CUDA_MACHINE(X)
#undef X

/* cuda_conv_fwd() ... */
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
