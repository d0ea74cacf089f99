/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/gpu.c - the properties of the emulated GPU: one device that
 * looks like an H100 with few multiprocessors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand/emu/internal.h"

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define X(name, code, text) \
    case code:              \
        return #name;
        EMU_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define X(name, code, text) \
    case code:              \
        return text;
        EMU_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

/* The context's error, or that `device` is not 0. */
static cudaError_t check(int device)
{
    cudaError_t e;

    emu_lock();
    e = emu_context();
    if (e == cudaSuccess && device != 0)
        e = cudaErrorInvalidDevice;
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = emu_device_absent() ? 0 : 1;
    return check(0);
}

cudaError_t cudaSetDevice(int device)
{
    return check(device);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return check(0);
}

/* The UUID of the requested GPU, so that nodes of several tests have different ones; otherwise a fixed UUID. */
static void uuid_bytes(char ret[16])
{
    const char *at = getenv("CUDA_VISIBLE_DEVICES");
    unsigned byte;

    for (int i = 0; i < 16; i++)
        ret[i] = (char)(0xE0 + i);
    if (!at || strncmp(at, "GPU-", 4) != 0)
        return;
    at += 4;
    for (int i = 0; i < 16 && sscanf(at += *at == '-', "%2x", &byte) == 1; i++, at += 2)
        ret[i] = (char)byte;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t e = check(device);

    memset(prop, 0, sizeof(*prop));
    if (e != cudaSuccess)
        return e;
    snprintf(prop->name, sizeof prop->name, "Emulated GPU");
    uuid_bytes(prop->uuid.bytes);
    cudaMemGetInfo(&prop->sharedMemPerBlock, &prop->totalGlobalMem);
    prop->sharedMemPerBlock = 48 << 10;
    prop->major = 9;
    prop->multiProcessorCount = 4;
    prop->warpSize = EMU_WARP;
    prop->maxThreadsPerBlock = EMU_MAX_THREADS;
    prop->pciBusID = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    struct cudaDeviceProp p;
    cudaError_t e = cudaGetDeviceProperties(&p, device);

    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
    case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
    case cudaDevAttrComputeMode:
    case cudaDevAttrMemoryPoolsSupported:
        *value = 0;
        break;
    }
    return e;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return check(0);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = emu_device_absent() ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
