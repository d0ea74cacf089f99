/* worker/ops/optim.h - steps of optimizers over flat fp32 arrays. */
#pragma once
#include "worker/core/device.h"
#include "worker/ops/family.h"

struct sgd {
    float lr, momentum, decay; /* decay is 0 where it does not apply */
    float scale;               /* multiplies the gradient first: clipping. 1: off */
    float ema_decay;           /* of the item's average, where it has one */
};

/* One parameter of an optimizer step. */
struct sgd_item {
    struct param *param;
    float *momentum;   /* [count] */
    const float *grad; /* [count] */
    float *ema;        /* [count], or NULL: a moving average of the weights is not kept */
    struct sgd sgd;
};

/* clang-format off */
#define OPTIM_OPS(X)                                                                                                                       \
    /* Of every item: m = momentum * m + (scale * g + decay * w); w = w - lr * m; ema = w + ema_decay * (ema - w). *skip != 0: nothing is  \
     * written. Bumps the parameters' versions. */                                                                                         \
    X(optim, sgd, (struct device *dev, const struct sgd_item *items, int nitems, const int32_t *skip, struct err *err),                    \
      (dev, items, nitems, skip, err))
/* clang-format on */

OPS_FAMILY(optim, OPTIM_OPS)
