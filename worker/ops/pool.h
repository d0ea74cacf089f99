/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/pool.h - pooling of windows of pixels. Reads pending values. f32
 * or bf16, independent of the device's dtype; x and y have the same. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

struct pooling {
    int size, stride;
    int pad_total; /* darknet: sum of both sides; a window starts at i * stride - pad_total / 2 */
};

/* clang-format off */
#define POOL_OPS(X)                                                                                                                        \
    X(pool, max_fwd, (struct device *dev, const struct pooling *p, struct tensor *y, const struct operand *x, int nshards,                 \
        struct err *err),                                                                                                                  \
      (dev, p, y, x, nshards, err))                                                                                                        \
    /* First maximum in row-major order of a window wins. dx = beta * dx, then dy of the windows an input won is added                     \
     * one by one in row-major order of the outputs: one owner per input, so overlapping windows need no atomics. */                       \
    X(pool, max_bwd, (struct device *dev, const struct pooling *p, struct tensor *dx, float beta, const struct tensor *dy,                 \
                const struct operand *x, int nshards, struct err *err), (dev, p, dx, beta, dy, x, nshards, err))
/* clang-format on */

OPS_FAMILY(pool, POOL_OPS)
