/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/device.h - what a machine is: memory, queues of work, marks between them, copies, and links to other ranks.
 *
 * What it can compute is in dev->on, families of operations: worker/ops/families.h. Work is queued on the device's stream; host code that reads
 * results calls sync() first. Every pointer is device memory unless its comment says host.
 *
 * A backend (CPU build, CUDA plugin) can be opened several times: each struct device is one queue of work with scratch memory of its own,
 * used by one thread at a time; memory of one is memory of all. Marks order work between queues. */
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
    const struct families *on; /* what it computes: worker/ops/families.h */
    enum dtype dtype;  /* of activations and their gradients: DTYPE_F32 or DTYPE_BF16. Parameters, their gradients and moments are fp32 */
    bool host_memory;  /* alloc() gives memory the host can read and write: shared-memory transports need no staging */
    bool pending;      /* convolutions read values with a pending activation; where not, layers have it computed first (act_fwd) */
    bool pooled_grads; /* norm's backward takes the gradient of maxima of 2 x 2 pixels as it is, and spreads it while it reads it */
    bool one_dest; /* in the tier set last, the *_bwd ops of parameters take one destination for all local shards; see conv_bwd_weights */
    const char *note; /* what the user should know of it, one sentence; NULL: nothing */
    int row; /* bytes that a pixel of activations should be a multiple of: values have gaps after their channels. 0: no gaps are wanted */
};

/* The stride of a value of c channels. Gaps are never written, and nothing depends on what is in them. */
static inline int device_stride(const struct device *dev, int c)
{
    int unit = dev->row / (int)dtype_bytes(dev->dtype);

    return unit > 1 ? (c + unit - 1) / unit * unit : c;
}

enum precision { PRECISION_FP32, PRECISION_TF32, PRECISION_BF16 }; /* of activations and products; sums are fp32 in all */

struct device_options {
    int threads;     /* CPU: compute threads; 0: as many as the process may use */
    const char *isa; /* CPU only: "avx512", "avx2", "generic"; NULL or "auto": the best this CPU has, and its unit for bf16 */
    enum precision precision;
};

/* Work queued on a device up to some moment. The CPU's is passed as soon as it is made. */
struct device_mark;

enum { DEVICE_MAX_VERSIONS = 12 };

/* What a rank says of its device when it starts, and what a run's identity holds. */
struct device_info {
    char name[96], uuid[64]; /* product name; "" where there is no UUID */
    int64_t memory_bytes;    /* all of it */
    int devices;             /* of this backend that the process sees; it uses the first */
    int nversions;           /* "driver" "13.0", "cudnn" "9.19.0" ... */
    struct {
        char name[24], value[64];
    } version[DEVICE_MAX_VERSIONS];
};

struct device_ops {
    unsigned abi; /* of a plugin, and stays first: DEVICE_ABI (worker/comm/abi.h); the loader refuses any other number */
    const char *name;
    const char *version; /* DETD_VERSION of the sources it was built from */
    /* 0, or the one sentence why this machine cannot run it: no driver, no GPU, a library that is missing or too old (found, needed). Opens
     * nothing. */
    int (*available)(struct err *err);
    int (*open)(int index, const struct device_options *opt, struct device **ret_dev, struct err *err);
    void (*close)(struct device *dev);
    void (*info)(struct device *dev, struct device_info *ret);
    /* From the next op on. Never while a tape holds records. May change dev->one_dest. Devices that know one way to compute ignore it. */
    void (*set_tier)(struct device *dev, enum tier tier);
    int (*sync)(struct device *dev, struct err *err);
    /* Marks: mark() notes what is queued on dev so far (a mark may be used again), wait() makes what is queued on dev from now on, on
     * another queue of the same backend, start after it; reach() makes the host wait for it. NULL: out of memory. */
    struct device_mark *(*mark_new)(struct device *dev);
    void (*mark_free)(struct device *dev, struct device_mark *m);
    int (*mark)(struct device *dev, struct device_mark *m, struct err *err);
    int (*wait)(struct device *dev, struct device_mark *m, struct err *err);
    int (*reach)(struct device *dev, struct device_mark *m, struct err *err);
    /* 256-byte aligned device memory (64 on the CPU), zeroed before anything that any queue is given later. NULL: out of memory. */
    void *(*alloc)(struct device *dev, size_t bytes);
    void (*free)(struct device *dev, void *ptr);
    /* Host memory that the device copies from and to without a stop in between (pinned), 64-byte aligned, zeroed. NULL: out of memory. */
    void *(*host_alloc)(struct device *dev, size_t bytes);
    void (*host_free)(struct device *dev, void *ptr);
    /* Any host memory; it may be rewritten as soon as upload() returns. download() waits until the bytes are there. */
    int (*upload)(struct device *dev, void *dst, const void *host, size_t bytes, struct err *err);
    int (*download)(struct device *dev, void *host, const void *src, size_t bytes, struct err *err);
    /* Between host_alloc() memory and device memory, in either direction, or inside device memory: queued; host memory is the device's
     * until sync() or a mark after it is reached. */
    int (*copy_async)(struct device *dev, void *dst, const void *src, size_t bytes, struct err *err);
    int (*zero)(struct device *dev, void *dst, size_t bytes, struct err *err);
    void (*param_release)(struct device *dev, struct param *p); /* frees p->derived */

    /* Collectives over device memory (worker/comm/comm.h), one rank a device: COMM_GRAD is queued on `grad`, COMM_SYNC on `sync`. link_id()
     * makes the text that rank 0 gives to all. Both NULL: ranks of this backend meet in shared memory. */
    int (*link_id)(char *ret, size_t size, struct err *err);
    int (*link_open)(struct device *sync, struct device *grad, const struct comm_options *opt, const char *id, struct comm **ret_comm,
                     struct err *err);
};

/* The one symbol a backend exports. The CPU device is built once per ISA: cpu_backend_avx512(), _avx2(), _generic(). */
const struct device_ops *detd_backend(void);
