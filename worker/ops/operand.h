/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/operand.h - what operations read: numbers, and what is still to be done to them. */
#pragma once
#include "worker/core/tensor.h"

/* Pending normalisation + activation of a value: readers see act(fma(x, scale[k], shift[k])), act(t) = t > 0 ? t : slope[k] * t.
 * All three point to c floats in device memory. Spatial padding is zero *after* it. */
struct affine {
    const float *scale, *shift, *slope;
};

/* Raw numbers and what is pending on them. act.scale == NULL: nothing is pending. */
struct operand {
    struct tensor x;
    struct affine act;
};
