/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/memory.c - device and pinned memory, and copies inside it.
 *
 * Device memory is plain cudaMalloc. Memory for a step comes from the arena (worker/core/arena.h). The arena takes a
 * few big chunks, then one for whole steps, and keeps it. It works like a stream-ordered pool: one stream in host
 * order, with offsets that depend only on the sequence of sizes. A driver's pool below it would see no calls after the
 * first steps, and NCCL can neither register nor map memory of such a pool. */
#include "cuda/memory.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "proto/err.h"

#define MIB          ((size_t)1 << 20)
#define SCRATCH_STEP (2 * MIB) /* scratch grows in steps, so that slightly larger shapes do not each need new memory */

int cuda_malloc(void **ret, size_t bytes, const char *what, struct err *err)
{
    size_t have = 0, total = 0;
    void *mem = NULL;
    cudaError_t e = cudaMalloc(&mem, bytes ? bytes : 1);

    if (e == cudaSuccess) {
        *ret = mem;
        return 0;
    }
    if (e != cudaErrorMemoryAllocation) {
        int rc = cuda_check(e, "cudaMalloc", err); /* `what` may be a buffer of the caller, but labels stay */

        err_prefix(err, "%s", what);
        return rc;
    }
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&have, &total);
    return err_set(err, -ENOMEM,
                   "%s: out of GPU memory: %zu MiB more are needed, %zu of %zu MiB are free; more train.waves or a smaller "
                   "train.batch or model.size need less",
                   what, (bytes + MIB - 1) / MIB, have / MIB, total / MIB);
}

void *cuda_alloc(struct device *dev, size_t bytes)
{
    cudaStream_t stream = cuda_device(dev)->stream;
    void *mem = NULL;

    if (cuda_malloc(&mem, bytes, "alloc", NULL) < 0)
        return NULL;
    /* Other queues may use the memory at once, so it must be zero before they know the address. */
    if (cuda_check(cudaMemsetAsync(mem, 0, bytes ? bytes : 1, stream), "alloc", NULL) == 0 &&
        cuda_check(cudaStreamSynchronize(stream), "alloc", NULL) == 0)
        return mem;
    (void)cudaFree(mem);
    return NULL;
}

/* Waits for all queues: work on any of them may still use the memory. */
void cuda_free(struct device *dev, void *ptr)
{
    (void)dev;
    if (!ptr)
        return;
    (void)cudaDeviceSynchronize();
    (void)cudaFree(ptr);
}

void *cuda_host_alloc(struct device *dev, size_t bytes)
{
    void *mem = NULL;

    (void)dev;
    if (cudaHostAlloc(&mem, bytes ? bytes : 1, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    memset(mem, 0, bytes ? bytes : 1);
    return mem;
}

void cuda_host_free(struct device *dev, void *ptr)
{
    (void)dev;
    if (!ptr)
        return;
    (void)cudaDeviceSynchronize();
    (void)cudaFreeHost(ptr);
}

int cuda_copy_async(struct device *dev, void *dst, const void *src, size_t bytes, struct err *err)
{
    return cuda_check(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, cuda_device(dev)->stream), "copy_async", err);
}

int cuda_zero(struct device *dev, void *dst, size_t bytes, struct err *err)
{
    return cuda_check(cudaMemsetAsync(dst, 0, bytes, cuda_device(dev)->stream), "zero", err);
}

void *cuda_scratch(struct device *dev, size_t bytes, const char *what, struct err *err)
{
    struct cuda_device *d = cuda_device(dev);
    size_t want = (bytes + SCRATCH_STEP - 1) / SCRATCH_STEP * SCRATCH_STEP;

    if (bytes <= d->scratch_bytes && d->scratch)
        return d->scratch;
    if (bytes > SIZE_MAX - SCRATCH_STEP) {
        err_set(err, -ENOMEM, "%s: %zu bytes of working memory are more than any GPU has", what, bytes);
        return NULL;
    }
    /* The old memory is freed first, so that both are never held; queued ops may still use it. */
    if (cuda_check(cudaStreamSynchronize(d->stream), what, err) < 0)
        return NULL;
    (void)cudaFree(d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
    if (cuda_malloc(&d->scratch, want ? want : SCRATCH_STEP, what, err) < 0)
        return NULL;
    d->scratch_bytes = want ? want : SCRATCH_STEP;
    return d->scratch;
}
