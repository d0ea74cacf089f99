/* SPDX-License-Identifier: Apache-2.0 */ /* worker/optim/sgd.c - gradient descent with momentum, also Nesterov's. */
#include "proto/job/jobspec.h"
#include "worker/ops/families.h"
#include "worker/optim/optimizer.h"

static int step(struct device *dev, const struct jobspec *spec, int64_t t, const struct optim_item *items, int nitems,
                const struct clip *clip, struct err *err)
{
    const struct sgd how = { (float)spec->train_momentum, spec->train_nesterov };

    (void)t;
    return dev->on->optim->sgd(dev, items, nitems, &how, clip, err);
}

const struct optimizer_kind optimizer_sgd = { "sgd", { "momentum" }, step };
