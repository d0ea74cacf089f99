/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/libs_nccl.h - the table of NCCL; see cuda/libs.h. It is separate for
 * the tests that put an emulated NCCL in its place. */
#pragma once
#include <nccl.h>

struct err;

/* clang-format off */
#define NCCL_FUNCTIONS(X)                                                                                                                  \
    X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId)                                                         \
    X(ncclCommInitRankConfig) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)                             \
    X(ncclMemAlloc) X(ncclMemFree)                                                                                                         \
    X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) X(ncclRecv) X(ncclAllGather) X(ncclBroadcast) X(ncclAllReduce)
#define NCCL_FUNCTIONS_OPTIONAL(X)                                                                                                         \
    X(ncclCommWindowRegister) X(ncclCommWindowDeregister)

#define X(name) __typeof__(name) *name;
struct nccl_api { NCCL_FUNCTIONS(X) NCCL_FUNCTIONS_OPTIONAL(X) };
#undef X
/* clang-format on */

int libs_nccl(const struct nccl_api **ret_api, struct err *err);
