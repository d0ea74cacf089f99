/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/cast.cu - bf16 gradients to fp32. */
#include "cuda/engine.h"
#include "cuda/flat.h"

int cuda_cast_add_f32(struct device *dev, float *dst, const void *bf16_src, size_t n, bool add, struct err *err)
{
    if (add)
        flat<float, bf16, true>(dev, dst, (const bf16 *)bf16_src, n);
    else
        flat<float, bf16, false>(dev, dst, (const bf16 *)bf16_src, n);
    return cuda_check(cudaPeekAtLastError(), "conv_bwd_weights", err);
}
