/* worker/cpu/cpu.h - the CPU device: fp32, NHWC, own convolutions, one source compiled once per ISA with equal bits.
 *
 * Each row of struct device_ops is a function cpu_<row>() in the file of its family (conv.c, norm.c, act.c ...); its contract stands in
 * worker/core/device.h. An op is done when it returns. One thread calls a device at a time; ops share work through the pool.
 * Bits: an output depends on its shard's data and shape alone, never on threads, on the number of shards or on the ISA. */
#pragma once
#include "worker/core/device.h"
#include "worker/core/pool.h"

struct cpu_device {
    struct device dev; /* stays first */
    struct pool *pool;
    void *scratch; /* see cpu_scratch() */
    size_t scratch_bytes;
};

static inline struct cpu_device *cpu_device(struct device *dev)
{
    return (struct cpu_device *)dev;
}

static inline struct pool *cpu_pool(struct device *dev)
{
    return cpu_device(dev)->pool;
}

/* Working memory of the op that runs now, 64-byte aligned, contents undefined; the next call may move it. Kept by the device and only
 * grown, so the steady state allocates nothing. An op that needs memory per thread takes it in one piece and cuts it by the thread's
 * index. NULL: out of memory, *err says so. */
void *cpu_scratch(struct device *dev, size_t bytes, struct err *err);

/* 64-byte aligned memory, huge pages where it is large; contents undefined. Freed with free(). NULL: out of memory. */
void *cpu_memory(size_t bytes);

/* The rows of struct device_ops, as functions of this device. Those it leaves out are NULL: ranks meet in shared memory, nothing is planned. */
/* clang-format off */
#define CPU_OPS(X)                                                                                                                         \
    X(available) X(open) X(close) X(info) X(set_tier) X(sync) X(mark_new) X(mark_free) X(mark) X(wait) X(reach)                            \
    X(alloc) X(free) X(host_alloc) X(host_free) X(upload) X(download) X(copy_async) X(zero) X(param_release) X(cast)                       \
    X(conv_fwd) X(conv_bwd_data) X(conv_bwd_weights) X(conv_bwd_bias)                                                                      \
    X(norm_prepare) X(norm_prepare_running) X(norm_bwd_reduce) X(norm_bwd_apply) X(merge_moments) X(merge_sums) X(norm_running)  \
    X(act_fwd) X(act_bwd) X(add_fwd) X(maxpool_fwd) X(maxpool_bwd) X(upsample_fwd) X(upsample_bwd)                                         \
    X(yolo_loss) X(yolo_decode)                                                                                                            \
    X(tree_add) X(sum_squares) X(sgd_step) X(hash)

/* clang-format on */
#define X(row) __typeof__(*((struct device_ops *)0)->row) cpu_##row;
CPU_OPS(X)
#undef X
