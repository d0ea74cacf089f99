/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/device.h - a device: memory, queues of work, marks between
 * them, copies, and links to other ranks.
 *
 * Its computations are in dev->on, families of operations: worker/ops/families.h. Work is queued on the device's
 * stream; host code that reads results calls sync() first. Every pointer is device memory unless its comment says host.
 *
 * A backend (CPU build, CUDA plugin) can be opened several times. Each struct device is one queue of work with its own
 * scratch memory and must be used by one thread at a time; memory of one is valid for all. Marks order work between
 * queues. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/tier.h"
#include "worker/core/param.h"
#include "worker/core/tensor.h"

struct comm;
struct comm_options;
struct err;
struct families;

struct device {
    const struct device_ops *ops;
    const struct families *on; /* its operations: worker/ops/families.h */
    /* of activations and their gradients: DTYPE_F32 or DTYPE_BF16. Parameters, their gradients and moments are fp32 */
    enum dtype dtype;
    bool host_memory; /* alloc() gives memory the host can read and write: shared-memory transports need no staging */
    /* convolutions can read values with a pending activation; otherwise layers compute it first (act_fwd) */
    bool pending;
    bool pooled_grads; /* norm's backward takes the gradient of maxima of 2 x 2 pixels and spreads it while reading */
    /* in the current tier, the *_bwd ops of parameters take one destination for all local shards; see
     * conv_bwd_weights */
    bool one_dest;
    const char *note; /* one sentence of advice for the user; NULL: no advice */
    /* a pixel of activations should be a multiple of so many bytes; values have gaps after their channels. 0: no gaps
     * are wanted */
    int row;
};

/* The stride of a value of c channels. Gaps are never written, and nothing depends on what is in them. */
static inline int device_stride(const struct device *dev, int c)
{
    int unit = dev->row / (int)dtype_bytes(dev->dtype);

    return unit > 1 ? (c + unit - 1) / unit * unit : c;
}

/* of activations and products; sums are always fp32 */
enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 };

struct device_options {
    int threads; /* CPU: compute threads; 0: as many as the process may use */
    /* CPU only: "avx512", "avx2", "generic"; NULL or "auto": the best this CPU has, and its unit for bf16 */
    const char *isa;
    enum precision precision;
};

/* A point in the work queued on a device. On the CPU it is passed as soon as it is made. */
struct device_mark;

enum { DEVICE_MAX_VERSIONS = 12 };

/* A rank's report of its device when it starts; part of a run's identity. */
struct device_info {
    char name[96], uuid[64]; /* product name; "" if there is no UUID */
    int64_t memory_bytes;    /* total */
    int devices;             /* of this backend and visible to the process; it uses the first */
    int nversions;           /* "driver" "13.0", "cudnn" "9.19.0" ... */
    struct {
        char name[24], value[64];
    } version[DEVICE_MAX_VERSIONS];
};

struct device_ops {
    /* in a plugin; must stay first: DEVICE_ABI (worker/comm/abi.h); the loader refuses any other number */
    unsigned abi;
    const char *name;
    const char *version; /* DETD_VERSION of the sources it was built from */
    /* Returns 0, or an error with one sentence why this machine cannot run it: no driver, no GPU, a library that is
     * missing or too old (found, needed). Opens nothing. */
    int (*available)(struct err *err);
    int (*open)(int index, const struct device_options *opt, struct device **ret_dev, struct err *err);
    void (*close)(struct device *dev);
    void (*info)(struct device *dev, struct device_info *ret);
    /* Takes effect with the next op. Must not be called while a tape holds records. May change dev->one_dest. Devices
     * with one way to compute ignore it. */
    void (*set_tier)(struct device *dev, enum tier tier);
    int (*sync)(struct device *dev, struct err *err);
    /* Marks: mark() notes the work queued on dev so far (a mark may be used again). wait() makes later work on dev,
     * another queue of the same backend, start after the mark. reach() makes the host wait for it. NULL: out of
     * memory. */
    struct device_mark *(*mark_new)(struct device *dev);
    void (*mark_free)(struct device *dev, struct device_mark *m);
    int (*mark)(struct device *dev, struct device_mark *m, struct err *err);
    int (*wait)(struct device *dev, struct device_mark *m, struct err *err);
    int (*reach)(struct device *dev, struct device_mark *m, struct err *err);
    /* 256-byte aligned device memory (64 on the CPU), zeroed before anything that any queue is given later. NULL: out
     * of memory. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*free)(struct device *dev, void *ptr);
    /* Pinned host memory: the device copies from and to it without a stop in between. 64-byte aligned, zeroed. NULL:
     * out of memory. */
    void *(*host_alloc)(struct device *dev, size_t bytes);
    void (*host_free)(struct device *dev, void *ptr);
    /* Any host memory; it may be rewritten as soon as upload() returns. download() waits until the bytes are there. */
    int (*upload)(struct device *dev, void *dst, const void *host, size_t bytes, struct err *err);
    int (*download)(struct device *dev, void *host, const void *src, size_t bytes, struct err *err);
    /* Queues a copy between host_alloc() memory and device memory, in either direction, or inside device memory. The
     * host memory belongs to the device until sync(), or until a later mark is reached. */
    int (*copy_async)(struct device *dev, void *dst, const void *src, size_t bytes, struct err *err);
    int (*zero)(struct device *dev, void *dst, size_t bytes, struct err *err);
    void (*param_release)(struct device *dev, struct param *p); /* frees p->derived */

    /* Collectives over device memory (worker/comm/comm.h), one rank a device: COMM_GRAD is queued on `grad`, COMM_SYNC
     * on `sync`. link_id() makes the text that rank 0 gives to all. Both NULL: ranks of this backend communicate
     * through shared memory. */
    int (*link_id)(char *ret, size_t size, struct err *err);
    int (*link_open)(struct device *sync, struct device *grad, const struct comm_options *opt, const char *id, struct comm **ret_comm,
                     struct err *err);
};

/* The only symbol that a backend exports. The CPU device is built once per ISA: cpu_backend_avx512(), _avx2(),
 * _generic(). */
const struct device_ops *detd_backend(void);
