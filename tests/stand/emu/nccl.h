/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/nccl.h - an emulated NCCL: the part of the library's
 * interface that the device uses, for ranks that are threads of one process.
 *
 * A call behaves like the library's non-blocking communicators. Joining and queueing continue after the call has
 * returned (ncclInProgress for a few polls). An operation is a task on the emulated stream that meets the other ranks'
 * tasks and copies. A rank that does not come keeps it there until ncclCommAbort(). Behaviour that the library leaves
 * undefined is an error here: a receive of another size than the sent one, a call on a communicator with an operation
 * in progress. Two threads inside one communicator are counted. */
#pragma once
#include <cuda_runtime.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_UNIQUE_ID_BYTES       128
#define NCCL_WIN_COLL_SYMMETRIC    1
#define NCCL_CTA_POLICY_DEFAULT    0
#define NCCL_CTA_POLICY_EFFICIENCY 1
#define NCCL_CONFIG_INITIALIZER \
    {                           \
        .blocking = 1           \
    }

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
} ncclResult_t;
typedef enum { ncclUint8 = 1, ncclFloat32 = 7 } ncclDataType_t;
typedef enum { ncclSum } ncclRedOp_t;
typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;
typedef struct {
    int blocking, maxCTAs, CTAPolicy;
    const char *commName;
} ncclConfig_t;
typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclMemAlloc(void **mem, size_t bytes);
ncclResult_t ncclMemFree(void *mem);
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *mem, size_t bytes, ncclWindow_t *window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *mem, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *mem, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream);

/* ---- for tests ---- */

/* Counts of calls; all zero when a test starts. */
struct nccl_seen {
    unsigned groups, sends, receives, gathers, broadcasts, windows, aborts;
    unsigned races;         /* calls on a communicator while another thread was inside it */
    unsigned comms, memory; /* that live now */
    size_t bytes_moved;     /* between ranks */
    char names[2][32];      /* of the communicators opened last */
};
void nccl_look(struct nccl_seen *ret);
void nccl_forget(void);
/* From now on: whether windows can be registered; a version for ncclGetVersion(), 0: the usual one. */
void nccl_pretend(int windows, int version);
/* The communicators of this rank that join from now on fail with `how` after `ops` operations (ncclSuccess: they do not
 * fail). */
void nccl_break(int rank, ncclResult_t how, unsigned ops);

#ifdef __cplusplus
}
#endif
