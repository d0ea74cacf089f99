/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/cuda_runtime.h - the part of the CUDA runtime that cuda/
 * uses, played on the CPU: stands in front of the toolkit's header of this name, so that cuda/device.c and, with
 * kernels as C++ functions, cuda/<family>.cu run in tests without a GPU.
 *
 * There is a single device. Work is deferred: launches and asynchronous copies wait on their stream until their results
 * are needed. They run in an order that a seed chooses, within the rules of streams, events and the documented
 * behaviour of each call. Device memory starts out as 0xFF bytes (NaN), and host code that touches it is killed. An
 * action that no correct program does (a barrier not all threads reach, freeing memory that queued work still uses ...)
 * ends the process with a sentence on stderr. Controls for tests: tests/stand/emu/emu.h. Names and numbers are those of
 * CUDA 13. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
#define EMU_ERRORS(X)                                                                                                                      \
    X(cudaSuccess, 0, "no error")                                                                                                          \
    X(cudaErrorInvalidValue, 1, "invalid argument")                                                                                        \
    X(cudaErrorMemoryAllocation, 2, "out of memory")                                                                                       \
    X(cudaErrorInitializationError, 3, "initialization error")                                                                             \
    X(cudaErrorCudartUnloading, 4, "driver shutting down")                                                                                 \
    X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                                                                  \
    X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                                                                         \
    X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                                                            \
    X(cudaErrorStubLibrary, 34, "CUDA driver is a stub library")                                                                           \
    X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version")                                     \
    X(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")                                                \
    X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                                                                        \
    X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                                                               \
    X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device")                                    \
    X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                                                               \
    X(cudaErrorNvlinkUncorrectable, 220, "uncorrectable NVLink error detected during the execution")                                       \
    X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                                                                      \
    X(cudaErrorNotReady, 600, "device not ready")                                                                                          \
    X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                                                            \
    X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                                                              \
    X(cudaErrorAssert, 710, "device-side assert triggered")                                                                                \
    X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped")                            \
    X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region")                                  \
    X(cudaErrorHardwareStackError, 714, "hardware stack error")                                                                            \
    X(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")                                                          \
    X(cudaErrorMisalignedAddress, 716, "misaligned address")                                                                               \
    X(cudaErrorInvalidAddressSpace, 717, "operation not supported on global/shared address space")                                         \
    X(cudaErrorInvalidPc, 718, "invalid program counter")                                                                                  \
    X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                                                                           \
    X(cudaErrorTensorMemoryLeak, 721, "tensor memory not completely freed")                                                                \
    X(cudaErrorNotPermitted, 800, "operation not permitted")                                                                               \
    X(cudaErrorNotSupported, 801, "operation not supported")                                                                               \
    X(cudaErrorSystemNotReady, 802, "system not yet initialized")                                                                          \
    X(cudaErrorSystemDriverMismatch, 803, "system has unsupported display driver / cuda driver combination")                               \
    X(cudaErrorContained, 911, "Invalid access of peer GPU memory over nvlink or a hardware error")                                        \
    X(cudaErrorUnknown, 999, "unknown error")
/* clang-format on */
#define X(name, code, text) name = code,
typedef enum cudaError { EMU_ERRORS(X) } cudaError_t;
#undef X

typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;

enum {
    cudaStreamDefault = 0,
    cudaStreamNonBlocking = 1,
    cudaEventDefault = 0,
    cudaEventBlockingSync = 1,
    cudaEventDisableTiming = 2,
    cudaEventRecordDefault = 0,
    cudaEventWaitDefault = 0,
    cudaHostAllocDefault = 0,
    cudaHostAllocPortable = 1,
    cudaHostAllocMapped = 2,
    cudaHostRegisterDefault = 0,
    cudaHostRegisterPortable = 1,
    CUDART_VERSION = 13000
};

enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeMode = 20,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMemoryPoolsSupported = 115
};

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };

struct cudaPointerAttributes {
    enum cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

typedef struct {
    char bytes[16];
} cudaUUID_t;

struct cudaDeviceProp {
    char name[256];
    cudaUUID_t uuid;
    size_t totalGlobalMem, sharedMemPerBlock;
    int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock;
    int pciBusID, pciDeviceID, pciDomainID, l2CacheSize;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);

cudaError_t cudaMalloc(void **ptr, size_t bytes);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaHostAlloc(void **ptr, size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void **ptr, size_t bytes);
cudaError_t cudaFreeHost(void *ptr);
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *ptr);
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attr, const void *ptr);
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *dst, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);

#ifdef __cplusplus
}
#include "tests/stand/emu/device_code.h"
#endif
