/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/check.c - errors of the GPU, and the operations queued last. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "cuda/cuda.h"
#include "proto/err.h"

enum { LABELS = 16 }; /* operations named after a lost context: the faulty one was queued before the one that noticed */

static const char *_Atomic labels[LABELS];

static atomic_uint nlabels;

static bool context_lost(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
        return true;
    default:
        return false;
    }
}

/* The ops queued last, oldest first: "act_fwd, add_fwd". */
static void last_ops(char *ret, size_t size)
{
    unsigned end = atomic_load(&nlabels), from = end > LABELS ? end - LABELS : 0;
    size_t used = 0;

    ret[0] = '\0';
    for (unsigned i = from; i < end && used + 1 < size; i++) {
        const char *label = atomic_load(&labels[i % LABELS]);
        int n = snprintf(ret + used, size - used, "%s%s", used ? ", " : "", label ? label : "?");

        used += n > 0 ? (size_t)n : 0;
    }
}

int cuda_check(cudaError_t e, const char *what, struct err *err)
{
    char ops[320];

    atomic_store(&labels[atomic_fetch_add(&nlabels, 1) % LABELS], what);
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* clears the error if possible, so that it is not blamed on the next op */
    if (!context_lost(e))
        return err_set(err, ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorName(e), cudaGetErrorString(e));
    last_ops(ops, sizeof ops);
    return err_set(err, ERR_DEVICE, "%s: %s (%s); the GPU's context is lost and this process has to end. Queued last: %s", what,
                   cudaGetErrorName(e), cudaGetErrorString(e), ops);
}
