/* worker/ops/resample.h - values at another resolution. Reads pending values. f32 or bf16, whatever the device's dtype; x and y have the same. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

/* clang-format off */
#define RESAMPLE_OPS(X)                                                                                                                    \
    /* Nearest: each pixel becomes factor x factor. */                                                                                     \
    X(resample, upsample_fwd, (struct device *dev, int factor, struct tensor *y, const struct operand *x, int nshards, struct err *err),   \
      (dev, factor, y, x, nshards, err))                                                                                                   \
    X(resample, upsample_bwd, (struct device *dev, int factor, struct tensor *dx, float beta, const struct tensor *dy, int nshards,        \
                     struct err *err), (dev, factor, dx, beta, dy, nshards, err))
/* clang-format on */

OPS_FAMILY(resample, RESAMPLE_OPS)
