/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/norm.h - batch normalisation: statistics, the scale and shift
 * that pend on a value because of them, the way back, and running statistics. Values are f32 or bf16, independent of
 * the device's dtype. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/conv.h"
#include "worker/ops/family.h"
#include "worker/ops/operand.h"

/* Running statistics of one normalisation. */
struct running_item {
    struct param *mean, *var; /* [c] each */
    size_t at;                /* where its batch statistics begin in a shard's record, doubles */
    bool sync;                /* all shards are one batch: uses their merged statistics */
};

/* Destination of sums of [c] doubles as gradients of a parameter: dst[v][k] = beta * dst[v][k] + (float)sum of shard
 * v. */
struct sums_dest {
    float *const *dst;
    float beta;
};

/* with at least so many channels other ways to compute weight gradients are quicker; they read dx more than once */
enum { CONV_NORM_CHANNELS = 16 };

/* The result of bwd_apply, given by its arguments. */
struct norm_grad {
    const struct tensor *da;
    const struct operand *x;
    const float *const *mean, *const *invstd;
    const double *const *sums, *const *stats;
};

/* clang-format off */
#define NORM_OPS(X)                                                                                                                        \
    /* From stats ([2c + 1] doubles as conv's fwd writes; one per shard, or nshards times the same pointer for SyncBN):                    \
     * mean, invstd (biased variance, eps inside the root), scale = gamma * invstd, shift = beta - mean * scale (formed                    \
     * in double); each [c] floats per shard. */                                                                                           \
    X(norm, prepare, (struct device *dev, float *const *mean, float *const *invstd, float *const *scale, float *const *shift,              \
                const double *const *stats, const float *gamma, const float *beta, float eps, int c, int nshards, struct err *err),        \
      (dev, mean, invstd, scale, shift, stats, gamma, beta, eps, c, nshards, err))                                                         \
    /* Like prepare, from running statistics, one result for all shards (evaluation, frozen normalisation). */                             \
    X(norm, prepare_running, (struct device *dev, float *invstd, float *scale, float *shift, const float *mean, const float *var,          \
                        const float *gamma, const float *beta, float eps, int c, struct err *err),                                         \
      (dev, invstd, scale, shift, mean, var, gamma, beta, eps, c, err))                                                                    \
    /* With dy = da * act'(fma(x, scale, shift)) and xhat = (x - mean) * invstd: sums[v] = [2c] doubles, sum dy then sum                   \
     * dy * xhat, slabs, pairwise. dest[0] is for the first, dest[1] for the second. On a device with pooled_grads da                      \
     * may be half as high and wide as x. It is then the gradient of the maxima of windows of 2 x 2 of the activated                       \
     * values: the first maximum of each window gets it, the others get 0. */                                                              \
    X(norm, bwd_reduce, (struct device *dev, double *const *sums, const struct sums_dest dest[2], const struct operand *x,                 \
                   const float *const *mean, const float *const *invstd, const struct tensor *da, int nshards, struct err *err),           \
      (dev, sums, dest, x, mean, invstd, da, nshards, err))                                                                                \
    /* dx = scale * (dy - S0/n - xhat * S1/n) with S = sums[v], n = stats[v][0] (over all shards with SyncBN); dx may be                   \
     * da itself. da as above.                                                                                                             \
     * sums == NULL: frozen statistics, dx = scale * dy; mean, invstd and stats are not read. */                                           \
    X(norm, bwd_apply, (struct device *dev, struct tensor *dx, const struct tensor *da, const struct operand *x, const float *const *mean, \
                  const float *const *invstd, const double *const *sums, const double *const *stats, int nshards, struct err *err),        \
      (dev, dx, da, x, mean, invstd, sums, stats, nshards, err))                                                                           \
    /* Updates the running statistics of every item once: running = (1 - momentum) * running + momentum * value. If the                    \
     * item is sync, the values are mean and M2 / (count - 1) of all shards merged (reduce's tree_moments). Otherwise                      \
     * they are the means over shards, in tree order, of each shard's values. A single pixel has no unbiased variance:                     \
     * such a shard is left out of the variances' mean. If no variance is left (merged: one pixel in all) var keeps its                    \
     * value. stats: a record of each of all V shards, each of at least one pixel; an item's [2c + 1] stand at its place                   \
     * in each. *skip != 0: nothing is written. Bumps the parameters' versions. */                                                         \
    X(norm, running, (struct device *dev, const struct running_item *items, int nitems, const double *const *stats, int nstats,            \
                float momentum, const int32_t *skip, struct err *err), (dev, items, nitems, stats, nstats, momentum, skip, err))
/* For a device on which conv's fwd would have to read y again for its statistics; NULL: it computes them on the way. */
#define NORM_OPS_APART(X)                                                                                                                  \
    /* Statistics of y, like conv's fwd, and prepare's results from them. */                                                               \
    X(norm_apart, batch, (struct device *dev, double *const *stats, float *const *mean, float *const *invstd, float *const *scale,         \
              float *const *shift, const struct tensor *y, const float *gamma, const float *beta, float eps, int nshards,                  \
              struct err *err), (dev, stats, mean, invstd, scale, shift, y, gamma, beta, eps, nshards, err))
/* For a device that computes dx where it reads it; NULL: bwd_apply writes it. */
#define CONV_NORM_OPS(X)                                                                                                                   \
    /* conv's bwd_weights for fewer than CONV_NORM_CHANNELS inputs, with dx as output gradients. It gives the same bits                    \
     * without an array for dx, which would be many times as large as the other operands. No shard may have rows that                      \
     * depend on data. */                                                                                                                  \
    X(conv_norm, bwd_weights, (struct device *dev, float *const *dw, float beta, const struct operand *x, const struct norm_grad *dy,      \
              const struct conv *cv, const struct param *w, int nshards, struct err *err), (dev, dw, beta, x, dy, cv, w, nshards, err))
/* clang-format on */

OPS_FAMILY(norm, NORM_OPS)
OPS_FAMILY(norm_apart, NORM_OPS_APART)
OPS_FAMILY(conv_norm, CONV_NORM_OPS)
