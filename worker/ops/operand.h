/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/operand.h - operands of operations: numbers, and the operation
 * that is still pending on them. */
#pragma once
#include "worker/core/tensor.h"

/* Pending normalisation + activation of a value: readers see act(fma(x, scale[k], shift[k])), act(t) = t > 0 ? t :
 * slope[k] * t. All three point to c floats in device memory. Spatial padding is zero *after* it. */
struct affine {
    const float *scale, *shift, *slope;
};

/* Raw numbers and their pending operation. act.scale == NULL: nothing is pending. */
struct operand {
    struct tensor x;
    struct affine act;
};
