/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/libs.h - NVIDIA's libraries as tables of functions. The plugin is not
 * linked with them. Each library is looked for and opened when it is first needed (cuda/search.h lists the places). A
 * machine without it, or with another version, gets a sentence instead of a loader's error.
 *
 *     const struct cudnn_api *dnn;
 *     int rc = libs_cudnn(&dnn, err);
 *     if (rc == 0) status = dnn->cudnnCreate(&handle);
 *
 * To use another function, add its name to the list; it must exist in the oldest version that is accepted. Names in an
 * _OPTIONAL list are NULL if the library found is too old for them. The headers may be newer than the library. For C
 * files only. */
#pragma once
#include <cublasLt.h>
#include <cudnn.h>

#include "cuda/libs_nccl.h"
#include "cuda/versions.h"

struct err;

/* clang-format off */
#define CUDNN_FUNCTIONS(X)                                                                                                                 \
    X(cudnnGetVersion) X(cudnnGetCudartVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString)                                          \
    X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream)                                                                                       \
    X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendFinalize)                                               \
    X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendExecute)

#define CUBLASLT_FUNCTIONS(X)                                                                                                              \
    X(cublasLtGetVersion) X(cublasLtGetStatusName) X(cublasLtGetStatusString)                                                              \
    X(cublasLtCreate) X(cublasLtDestroy)                                                                                                   \
    X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatmulDescGetAttribute)           \
    X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatrixLayoutGetAttribute)   \
    X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute)                           \
    X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoCheck)                                                                           \
    X(cublasLtMatmulAlgoCapGetAttribute) X(cublasLtMatmulAlgoConfigGetAttribute) X(cublasLtMatmulAlgoConfigSetAttribute)                   \
    X(cublasLtMatmul)

#define X(name) __typeof__(name) *name;
struct cudnn_api { CUDNN_FUNCTIONS(X) };
struct cublaslt_api { CUBLASLT_FUNCTIONS(X) };
#undef X
/* clang-format on */

/* The library's table, for as long as the process lives; any thread may ask. The first call looks for it; all later
 * calls return the same answer, good or bad. ERR_UNSUPPORTED: the text names the library, the versions found and their
 * places, the version needed, and how to set the place. */
int libs_cudnn(const struct cudnn_api **ret_api, struct err *err);
int libs_cublaslt(const struct cublaslt_api **ret_api, struct err *err);
