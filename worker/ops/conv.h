/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/conv.h - convolutions; plan.h has hints for devices that choose
 * algorithms. Values are of the device's dtype. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

struct conv {
    int stride, pad; /* same in both directions; kernel size and channels come from the parameter */
};

/* clang-format off */
#define CONV_OPS(X)                                                                                                                        \
    /* y = conv(act(x), w) + bias (bias may be NULL). y may be a slice. stats (may be NULL): stats[v] gets, as doubles                     \
     * in device memory, count, mean[k], M2[k] (sum of squared deviations) of y over the shard's pixels: slabs cut by                      \
     * shape, merged pairwise (Chan). */                                                                                                   \
    X(conv, fwd, (struct device *dev, struct tensor *y, const struct operand *x, const struct conv *cv, struct param *w,                   \
            const float *bias, double *const *stats, int nshards, struct err *err), (dev, y, x, cv, w, bias, stats, nshards, err))         \
    /* dx (gradient of act(x), i.e. after activation) = beta * dx + conv_transpose(dy, w). */                                              \
    X(conv, bwd_data, (struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, const struct conv *cv, struct param *w, \
                 int nshards, struct err *err), (dev, dx, beta, dy, cv, w, nshards, err))                                                  \
    /* dw[v] (KRSC floats of shard v) = beta * dw[v] + gradient; slabs cut by the shard's shape alone. With                                \
     * dev->one_dest, here, in bwd_bias and in norm's bwd_reduce, all entries may be one address. It gets the sum over                     \
     * all local shards, added in an order of the device's choice. */                                                                      \
    X(conv, bwd_weights, (struct device *dev, float *const *dw, float beta, const struct operand *x, const struct tensor *dy,              \
                    const struct conv *cv, const struct param *w, int nshards, struct err *err),                                           \
      (dev, dw, beta, x, dy, cv, w, nshards, err))                                                                                         \
    /* db[v][k] = beta * db[v][k] + sum of dy over the shard's pixels, in slabs, pairwise. */                                              \
    X(conv, bwd_bias, (struct device *dev, float *const *db, float beta, const struct tensor *dy, int nshards, struct err *err),           \
      (dev, db, beta, dy, nshards, err))
/* clang-format on */

OPS_FAMILY(conv, CONV_OPS)
