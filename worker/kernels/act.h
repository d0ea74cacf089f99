/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/act.h - activations: of one number, and the pending
 * normalisation + activation every reader of a value applies. */
#pragma once
#include "worker/ops/map.h"
#include "worker/kernels/math.h"

/* The value that readers of a pending value see; see struct affine. The sign test is on t itself, so forward and
 * backward agree. */
KERNEL_FN float act_pending(float x, float scale, float shift, float slope)
{
    float t = fmaf(x, scale, shift);

    return t > 0.0f ? t : slope * t;
}

KERNEL_FN float act_value(enum act_kind kind, float x)
{
    switch (kind) {
    case ACT_LEAKY:
        return x > 0.0f ? x : LEAKY_SLOPE * x;
    case ACT_RELU:
        return x > 0.0f ? x : 0.0f * x; /* NaN stays NaN; a negative x gives -0, as slope 0 of a pending value does */
    case ACT_LOGISTIC:
        return math_sigmoid(x);
    case ACT_TANH:
        return math_tanh(x);
    case ACT_ELU:
        return x > 0.0f ? x : math_exp(x) - 1.0f;
    case ACT_LINEAR:
        break;
    }
    return x;
}

/* dy * d act / d x, the slope expressed by the output y. */
KERNEL_FN float act_grad(enum act_kind kind, float dy, float y)
{
    switch (kind) {
    case ACT_LEAKY:
        return y > 0.0f ? dy : LEAKY_SLOPE * dy;
    case ACT_RELU:
        return y > 0.0f ? dy : 0.0f * dy;
    case ACT_LOGISTIC:
        return dy * (y * (1.0f - y));
    case ACT_TANH:
        return dy * fmaf(-y, y, 1.0f);
    case ACT_ELU:
        return y > 0.0f ? dy : dy * (y + 1.0f);
    case ACT_LINEAR:
        break;
    }
    return dy;
}

/* beta 0: overwrite and never read; 1: add. */
KERNEL_FN float act_store(float beta, const float *dst, float value)
{
    return beta != 0.0f ? fmaf(beta, *dst, value) : value;
}
