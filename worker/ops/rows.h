/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/rows.h - operations on rows of channels: layer normalisation (Ba
 * et al. 2016, arXiv:1607.06450). A row is a pixel of a tensor. Specs sparse_rcnn sections 3.6, 6.6, 10.1. */
#pragma once
#include <stdbool.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/norm.h"

enum { ROWS_MAX_CHANNELS = 4096 };

/* y = act(gamma * xhat + beta), xhat = (x - mean) * rho over the channels of a row, rho = 1 / sqrt(biased variance +
 * eps). */
struct rows_norm {
    float eps;
    bool relu;                 /* act; else y is not bent */
    const float *gamma, *beta; /* [c] */
};

/* clang-format off */
#define ROWS_OPS(X)                                                                                                                        \
    /* x + residual (NULL: x alone), rounded to fp32, is normalised. x, residual and y have one shape; each is f32 or                      \
     * bf16 on its own, nothing pending. stats[v]: [pixels][2] floats, written: mean, rho. Two passes: sums in 16                          \
     * lanes. */                                                                                                                           \
    X(rows, norm_fwd, (struct device *dev, const struct rows_norm *how, struct tensor *y, float *const *stats, const struct tensor *x,     \
                       const struct tensor *residual, int nshards, struct err *err), (dev, how, y, stats, x, residual, nshards, err))      \
    /* With g the gradient of x + residual: dx = beta[0] * dx + g, dresidual = beta[1] * dresidual + g (each NULL: not                     \
     * wanted), in their own dtypes. dest[0] gets dgamma, dest[1] dbeta (dst NULL: not wanted; with dev->one_dest as                       \
     * conv's bwd_weights): slabs of rows cut by the shard's shape alone, pairwise. The ReLU's gradient is 0 where                         \
     * gamma * xhat + beta <= 0. */                                                                                                        \
    X(rows, norm_bwd, (struct device *dev, const struct rows_norm *how, struct tensor *dx, struct tensor *dresidual, const float *beta,    \
                       const struct sums_dest dest[2], const struct tensor *dy, const float *const *stats, const struct tensor *x,         \
                       const struct tensor *residual, int nshards, struct err *err),                                                       \
      (dev, how, dx, dresidual, beta, dest, dy, stats, x, residual, nshards, err))
/* clang-format on */

OPS_FAMILY(rows, ROWS_OPS)
