/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/derived.h - the bf16 copy of a weight that convolutions read;
 * param->derived points to it on this device. conv.cu makes it at the weight's first convolution in bf16 and fills it
 * when it is stale; param_release frees it. An optimizer's step (optim.cu) may write the copy together with the
 * weights. If derived_fresh() held before the step, it holds after it too, with version = the parameter's new one. This
 * is so even when the step is skipped: then neither weights nor copy change. A copy that was stale before stays
 * stale. */
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
