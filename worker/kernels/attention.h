/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/attention.h - scaled dot products and their softmax. Vaswani
 * et al. 2017, arXiv:1706.03762; specs sparse_rcnn sections 3.2, 6.7, 10.1. */
#pragma once
#include "worker/kernels/rcnn.h"
#include "worker/ops/attn.h"

/* Factor of the dot products of d channels. */
KERNEL_FN float attn_scale(int d)
{
    return 1.0f / sqrtf((float)d);
}

/* Probability of a score; max and sum of its row as softmax_max() and softmax_sum() give them. */
KERNEL_FN float attn_weight(float score, float max, float sum)
{
    return math_exp(score - max) / sum;
}

/* Gradient of a score with probability p: dp is the gradient of p, mean the sum of p * dp over the row. */
KERNEL_FN float attn_slope(float p, float dp, float mean)
{
    return p * (dp - mean);
}
