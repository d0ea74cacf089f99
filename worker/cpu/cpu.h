/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/cpu.h - the CPU device: fp32 or bf16, NHWC, own convolutions,
 * one source compiled once per ISA with equal bits.
 *
 * Each operation is a function cpu_<family>_<name>() in the file of its family (conv.c, norm.c, map.c ...); its
 * contract stands in worker/ops. An op is done when it returns. One thread calls a device at a time; ops share work
 * through its threads. Bits: an output depends on its shard's data and shape alone, never on threads, on the number of
 * shards or on the ISA. */
#pragma once
#include "worker/core/device.h"
#include "worker/core/threads.h"
#include "worker/cpu/tile.h"
#include "worker/ops/families.h"

struct cpu_device {
    struct device dev; /* must stay first */
    struct threads *threads;
    void *scratch; /* see cpu_scratch() */
    size_t scratch_bytes;
    void *wide; /* see wide.h */
    size_t wide_bytes;
    const struct tile_unit *tiles; /* multiplies bf16: the CPU's unit for it, or its replacement */
    char note[320];                /* dev.note */
};

static inline struct cpu_device *cpu_device(struct device *dev)
{
    return (struct cpu_device *)dev;
}

static inline struct threads *cpu_threads(struct device *dev)
{
    return cpu_device(dev)->threads;
}

/* Working memory of the op that runs now, 64-byte aligned, contents undefined; the next call may move it. Kept by the
 * device and only grown, so the steady state allocates nothing. An op that needs memory per thread takes it in one
 * piece and cuts it by the thread's index. NULL: out of memory, *err tells it. */
void *cpu_scratch(struct device *dev, size_t bytes, struct err *err);

/* 64-byte aligned memory, huge pages if it is large; contents undefined. Free with free(). NULL: out of memory. */
void *cpu_memory(size_t bytes);

/* The functions of struct device_ops; missing ones are NULL: ranks communicate through shared memory. */
/* clang-format off */
#define CPU_MACHINE(X)                                                                                                                     \
    X(available) X(open) X(close) X(info) X(set_tier) X(sync) X(mark_new) X(mark_free) X(mark) X(wait) X(reach)                            \
    X(alloc) X(free) X(host_alloc) X(host_free) X(upload) X(download) X(copy_async) X(zero) X(param_release)
/* clang-format on */
#define X(row) __typeof__(*((struct device_ops *)0)->row) cpu_##row;
CPU_MACHINE(X)
#undef X

/* Declares cpu_conv_fwd() and all other operations. */
#define X(family, name, params, args) int cpu_##family##_##name params;
#define ROWS(family, LIST)            LIST(X)
FAMILIES_OF_ALL(ROWS)
FAMILIES_OF_CPU(ROWS)
#undef ROWS
#undef X
