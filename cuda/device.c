/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/device.c - opens and closes a queue of work on the GPU; describes the
 * GPU; marks. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cuda/cuda.h"
#include "cuda/engine.h"
#include "cuda/staging.h"
#include "cuda/versions.h"
#include "proto/host/driver.h"
#include "proto/err.h"

enum {
    COMPUTE_MIN = 80, /* bf16 and TF32 products need this, and so do our binaries */
};

struct device_mark {
    cudaEvent_t event;
};

/* Number of queues. The first one of a process computes. Later ones copy and exchange short pieces that others wait
 * for, so they have priority. */
static atomic_int nopened;

/* The runtime does not say why it could not load the driver. */
static int no_driver(struct err *err)
{
    struct err why;

    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
        return err_set(err, ERR_UNSUPPORTED, "the NVIDIA driver (libcuda.so.1) does not tell its version");
    (void)driver_missing(DRIVER_DEVICE, dlerror(), &why);
    return err_set(err, ERR_UNSUPPORTED, "%s", why.msg);
}

static int no_gpu(cudaError_t e, struct err *err)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0, runtime = 0;

    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return no_driver(err);
    if (e == cudaErrorInsufficientDriver)
        return err_set(err, ERR_UNSUPPORTED, "the NVIDIA driver is too old: it runs programs of CUDA %d.%d, this one needs %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (e != cudaSuccess && e != cudaErrorNoDevice)
        return err_set(err, ERR_UNSUPPORTED, "the NVIDIA driver gives no GPU: %s (%s)", cudaGetErrorName(e), cudaGetErrorString(e));
    if (visible)
        return err_set(err, ERR_UNSUPPORTED, "no GPU is visible to this process: CUDA_VISIBLE_DEVICES is '%.80s'", visible);
    return err_set(err, ERR_UNSUPPORTED, "this machine has no NVIDIA GPU");
}

static int compute_capability(int *ret_compute, struct err *err)
{
    int major = 0, minor = 0;
    cudaError_t e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);

    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (e != cudaSuccess)
        return cuda_check(e, "available", err);
    *ret_compute = 10 * major + minor;
    return 0;
}

/* Asks the driver for as many queues as a GPU has, unless the user has set a number. Streams on one queue wait for each
 * other, also those of libraries. A collective could then wait behind work for a peer that has the two in the other
 * order, which is a deadlock. The driver reads the variable once. */
static void want_queues(void)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

int cuda_available(struct err *err)
{
    int count = 0, compute = 0, rc;
    cudaError_t e;

    want_queues();
    e = cudaGetDeviceCount(&count);
    if (e != cudaSuccess || count < 1)
        return no_gpu(e, err);
    rc = compute_capability(&compute, err);
    if (rc < 0)
        return rc;
    if (compute < COMPUTE_MIN)
        return err_set(err, ERR_UNSUPPORTED, "the GPU has compute capability %d.%d; %d.%d is needed", compute / 10, compute % 10,
                       COMPUTE_MIN / 10, COMPUTE_MIN % 10);
    return libs_check(err);
}

static int open_stream(struct cuda_device *d, struct err *err)
{
    int low = 0, high = 0, rc = cuda_check(cudaSetDevice(0), "open", err);

    if (rc == 0)
        rc = compute_capability(&d->compute, err);
    if (rc == 0)
        rc = cuda_check(cudaDeviceGetAttribute(&d->multiprocessors, cudaDevAttrMultiProcessorCount, 0), "open", err);
    if (rc == 0)
        rc = cuda_check(cudaDeviceGetStreamPriorityRange(&low, &high), "open", err);
    if (rc == 0)
        rc = cuda_check(cudaStreamCreateWithPriority(&d->stream, cudaStreamNonBlocking, atomic_fetch_add(&nopened, 1) == 0 ? low : high),
                        "open", err);
    return rc;
}

int cuda_queue_open(int index, const struct device_options *opt, struct cuda_device **ret_d, struct err *err)
{
    struct cuda_device *d;
    int rc = cuda_available(err);

    if (rc < 0)
        return rc;
    if (index != 0)
        return err_set(err, ERR_NOTFOUND, "a process computes on its first GPU, number 0; %d was asked for (CUDA_VISIBLE_DEVICES chooses)",
                       index);
    d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, -ENOMEM, "out of memory: CUDA device");
    d->precision = opt ? opt->precision : PRECISION_FP32;
    d->dev = (struct device){ .dtype = d->precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32, .row = CUDA_ROW };
    cuda_set_tier(&d->dev, TIER_WORLD);
    rc = open_stream(d, err);
    if (rc == 0)
        rc = staging_open(d, &d->staging, err);
    if (rc < 0) {
        cuda_close(&d->dev);
        return rc;
    }
    *ret_d = d;
    return 0;
}

/* Works also on a device that was only partly opened. */
void cuda_close(struct device *dev)
{
    struct cuda_device *d = cuda_device(dev);

    if (!d)
        return;
    if (d->stream)
        (void)cudaStreamSynchronize(d->stream);
    engine_close(d->engine);
    staging_close(d->staging);
    (void)cudaFree(d->scratch);
    if (d->stream) {
        (void)cudaStreamDestroy(d->stream);
        atomic_fetch_sub(&nopened, 1);
    }
    free(d);
}

static void add_version(struct device_info *info, const char *name, int major, int minor)
{
    if (info->nversions >= DEVICE_MAX_VERSIONS)
        return;
    snprintf(info->version[info->nversions].name, sizeof info->version[0].name, "%s", name);
    snprintf(info->version[info->nversions++].value, sizeof info->version[0].value, "%d.%d", major, minor);
}

/* The UUID in the form of nvidia-smi and CUDA_VISIBLE_DEVICES. For a slice some drivers give its own UUID, others that
 * of its GPU. It gets the prefix of a slice if it is the UUID in CUDA_VISIBLE_DEVICES. */
static void uuid_text(const void *uuid, char *ret, size_t size)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    unsigned char b[16];

    memcpy(b, uuid, sizeof b);
    snprintf(ret, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    if (visible && strncmp(visible, "MIG-", 4) == 0 && strcasecmp(visible + 4, ret + 4) == 0)
        memcpy(ret, "MIG", 3);
}

void cuda_info(struct device *dev, struct device_info *ret)
{
    int compute = cuda_device(dev)->compute, version = 0;
    struct cudaDeviceProp p;

    memset(ret, 0, sizeof *ret);
    memset(&p, 0, sizeof p);
    if (cudaGetDeviceProperties(&p, 0) == cudaSuccess) {
        snprintf(ret->name, sizeof ret->name, "%.95s", p.name);
        uuid_text(&p.uuid, ret->uuid, sizeof ret->uuid);
        ret->memory_bytes = (int64_t)p.totalGlobalMem;
    }
    (void)cudaGetDeviceCount(&ret->devices);
    if (cudaDriverGetVersion(&version) == cudaSuccess)
        add_version(ret, "driver", version / 1000, version % 1000 / 10);
    if (cudaRuntimeGetVersion(&version) == cudaSuccess)
        add_version(ret, "cuda", version / 1000, version % 1000 / 10);
    add_version(ret, "compute", compute / 10, compute % 10);
    libs_info(ret);
}

void cuda_set_tier(struct device *dev, enum tier tier)
{
    cuda_device(dev)->tier = tier;
    dev->one_dest = tier != TIER_WORLD;
}

int cuda_sync(struct device *dev, struct err *err)
{
    return cuda_check(cudaStreamSynchronize(cuda_device(dev)->stream), "sync", err);
}

struct device_mark *cuda_mark_new(struct device *dev)
{
    struct device_mark *m = calloc(1, sizeof *m);

    (void)dev;
    /* Waiting for a mark sleeps: the cores decode images meanwhile. */
    if (m && cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming | cudaEventBlockingSync) != cudaSuccess) {
        (void)cudaGetLastError();
        free(m);
        return NULL;
    }
    return m;
}

void cuda_mark_free(struct device *dev, struct device_mark *m)
{
    (void)dev;
    if (!m)
        return;
    (void)cudaEventDestroy(m->event);
    free(m);
}

int cuda_mark(struct device *dev, struct device_mark *m, struct err *err)
{
    return cuda_check(cudaEventRecord(m->event, cuda_device(dev)->stream), "mark", err);
}

int cuda_wait(struct device *dev, struct device_mark *m, struct err *err)
{
    return cuda_check(cudaStreamWaitEvent(cuda_device(dev)->stream, m->event, 0), "wait", err);
}

int cuda_reach(struct device *dev, struct device_mark *m, struct err *err)
{
    (void)dev;
    return cuda_check(cudaEventSynchronize(m->event), "reach", err);
}
