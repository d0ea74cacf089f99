/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/derived.h - what param->derived points to on this device: the bf16 copy of a weight that convolutions read.
 * conv.cu makes it at a weight's first convolution in bf16 and fills it where it is stale; param_release frees it. Steps of optimizers (optim.cu) may write it
 * together with the weights: where derived_fresh() held before the step it holds after it too, with version = the parameter's new one (also
 * when the step is skipped: neither weights nor copy change). A copy that was stale before stays stale. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/param.h"

struct cuda_derived {
    void *bf16;       /* [count], in the order of param->data */
    uint64_t version; /* of the weights it was made from */
};

static inline struct cuda_derived *cuda_derived(const struct param *p)
{
    return (struct cuda_derived *)p->derived;
}

static inline bool derived_fresh(const struct param *p)
{
    return p->derived && cuda_derived(p)->version == p->version;
}
