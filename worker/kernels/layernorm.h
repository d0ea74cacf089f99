/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/layernorm.h - layer normalisation of a row of c numbers. A
 * sum over the row adds number k to lane k mod SUM_LANES, then the lanes pairwise. Ba et al. 2016, arXiv:1607.06450;
 * specs sparse_rcnn sections 3.6, 6.6, 10.1. */
#pragma once
#include "worker/kernels/norm.h"
#include "worker/kernels/reduce.h"
#include "worker/ops/rows.h"

enum { ROWS_SLAB = 64 /* rows in one chain of a parameter's gradient; slabs add pairwise in fp32 */ };

KERNEL_FN float rows_mean(float sum, int c)
{
    return sum / (float)c;
}

/* squares: sum of the squared differences from the mean. */
KERNEL_FN float rows_rho(float squares, int c, float eps)
{
    return 1.0f / sqrtf(rows_mean(squares, c) + eps);
}

KERNEL_FN float rows_value(const struct rows_norm *how, float xhat, int k)
{
    float y = fmaf(how->gamma[k], xhat, how->beta[k]);

    return how->relu && !(y > 0.0f) ? 0.0f * y : y; /* NaN stays NaN */
}

/* The gradient of gamma * xhat + beta from the gradient of y. */
KERNEL_FN float rows_dy(const struct rows_norm *how, float dy, float xhat, int k)
{
    float y = fmaf(how->gamma[k], xhat, how->beta[k]);

    return how->relu && !(y > 0.0f) ? 0.0f : dy;
}
