/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/resample.h - values at another resolution, or with pixels around
 * them. Reads pending values. f32 or bf16, independent of the device's dtype; x and y have the same. Each number of a
 * gradient has one owner, which adds the contributions of the outputs that read it, in their order. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

enum { MIRROR_MAX_FACTOR = 2, MIRROR_MAX_PAD = 3 };

/* Each pixel becomes factor x factor; around the result, pad pixels mirror its inside, the edge not repeated: -1 is 1,
 * n is n - 2. */
struct mirror {
    int factor, pad; /* 1 .. MIRROR_MAX_FACTOR; 0 .. MIRROR_MAX_PAD, below both sides of the picture inside */
};

/* clang-format off */
#define RESAMPLE_OPS(X)                                                                                                                    \
    /* Nearest: each pixel becomes factor x factor. */                                                                                     \
    X(resample, upsample_fwd, (struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err),   \
      (dev, factor, y, x, nshards, err))                                                                                                   \
    X(resample, upsample_bwd, (struct device *dev, int factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,        \
                     struct err *err), (dev, factor, dx, beta, dy, nshards, err))                                                          \
    /* y: [n, h * factor + 2 * pad, w * factor + 2 * pad, c], perhaps some channels of a wider value. */                                   \
    X(resample, mirror_fwd, (struct device *dev, const struct mirror *m, struct tensor *y, const struct operand *x, int nshards,           \
                   struct err *err), (dev, m, y, x, nshards, err))                                                                         \
    X(resample, mirror_bwd, (struct device *dev, const struct mirror *m, struct tensor *dx, float beta, const struct tensor *dy,           \
                   int nshards, struct err *err), (dev, m, dx, beta, dy, nshards, err))                                                    \
    /* f32: bilinear from h x w to y's sides: output i lies at (i + 1/2) * in / out - 1/2, not below 0; beyond the last                    \
     * pixel is the last. */                                                                                                               \
    X(resample, bilinear_fwd, (struct device *dev, struct tensor *y, const struct operand *x, int nshards, struct err *err),               \
      (dev, y, x, nshards, err))                                                                                                           \
    X(resample, bilinear_bwd, (struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err),  \
      (dev, dx, beta, dy, nshards, err))                                                                                                   \
    /* y [n, 1, 1, c]: factor * the mean of the pixels of each image, summed in double in their order. */                                  \
    X(resample, mean_fwd, (struct device *dev, float factor, struct tensor *y, const struct operand *x, int nshards, struct err *err),     \
      (dev, factor, y, x, nshards, err))                                                                                                   \
    X(resample, mean_bwd, (struct device *dev, float factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,          \
                 struct err *err), (dev, factor, dx, beta, dy, nshards, err))
/* clang-format on */

OPS_FAMILY(resample, RESAMPLE_OPS)
