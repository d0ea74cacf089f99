/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/optim.h - steps of optimizers over lists of flat fp32 arrays,
 * and clipping by the norm of the whole gradient. */
#pragma once
#include <stdbool.h>

#include "proto/hash/hash.h"
#include "worker/core/device.h"
#include "worker/ops/family.h"

enum { OPTIM_STATES = 2 }; /* most arrays that an optimizer keeps for a parameter */

/* Data of the whole gradient for a step. In device memory. */
struct clip {
    double square; /* squared norm, before any factor */
    float factor;  /* multiplies the gradient: its weight, or less if it would be longer than allowed */
    int32_t skip;  /* not 0: square is not finite, so nothing is written in this step */
};

/* A parameter of an optimizer step. */
struct optim_item {
    struct param *param;
    const float *grad;          /* [count] */
    float *state[OPTIM_STATES]; /* [count] each, as many as the optimizer has */
    float *ema;                 /* [count], or NULL: no moving average of the weights is kept */
    /* [ceil(count / 1024)] of the new weights' blocks (proto/hash/hash_keys.h), or NULL: not wanted */
    struct hash128 *hashes;
    float lr, decay; /* decay is 0 if it does not apply */
    float ema_decay;
};

/* SGD keeps m. Source: Sutskever et al. 2013, in the form of torch.optim.SGD with dampening 0. */
struct sgd {
    float momentum;
    bool nesterov; /* moves by g + momentum * m instead of m */
};

/* Adam keeps the first moment m and the second v. Source: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1. */
struct adam {
    float beta1, rest1, beta2, rest2; /* rest: 1 - beta, rounded once */
    float eps;
    float unbias1, unbias2; /* of step t: 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
};

/* clang-format off */
#define OPTIM_OPS(X)                                                                                                                       \
    /* *ret = the clip for the sum of n block sums of squares (op sum_squares), added in the tree over blocks[order[0]],                   \
     * blocks[order[1]] ... (core/tree.h tree_sum()); order NULL: as they lie. The gradient is multiplied by weight > 0;                   \
     * max_norm limits the norm after that; max_norm <= 0: the norm has no limit. */                                                       \
    X(optim, clip, (struct device *dev, struct clip *ret, const double *blocks, const uint32_t *order, int n, double weight,               \
                    double max_norm, struct err *err), (dev, ret, blocks, order, n, weight, max_norm, err))                                \
    /* For every item, with g = clip->factor * gradient: the new state and weights, then ema = w + ema_decay * (ema -                      \
     * w). Nothing is written if clip->skip is set. Bumps the parameters' versions. Bodies: kernels/optim.h. sgd: g +=                     \
     * decay * w; m = momentum * m + g; w -= lr * m, or lr * (g + momentum * m). */                                                        \
    X(optim, sgd, (struct device *dev, const struct optim_item *items, int nitems, const struct sgd *how, const struct clip *clip,         \
        struct err *err),                                                                                                                  \
      (dev, items, nitems, how, clip, err))                                                                                                \
    /* g += decay * w; m and v are averages of g and of its square; w -= lr * unbias1 * m / (unbias2 * sqrt(v) +                           \
     * eps). */                                                                                                                            \
    X(optim, adam, (struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,       \
        struct err *err),                                                                                                                  \
      (dev, items, nitems, how, clip, err))                                                                                                \
    /* The same with w -= lr * decay * w instead of decay in g. Source: Loshchilov and Hutter 2019, arXiv:1711.05101,                      \
     * algorithm 2. */                                                                                                                     \
    X(optim, adamw, (struct device *dev, const struct optim_item *items, int nitems, const struct adam *how, const struct clip *clip,      \
        struct err *err),                                                                                                                  \
      (dev, items, nitems, how, clip, err))
/* clang-format on */

OPS_FAMILY(optim, OPTIM_OPS)
