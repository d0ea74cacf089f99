/* SPDX-License-Identifier: Apache-2.0 */ /* worker/optim/adam.c - Adam, and AdamW with a decay outside of the
 * moments. */
#include <math.h>

#include "proto/job/jobspec.h"
#include "worker/kernels/math.h"
#include "worker/ops/families.h"
#include "worker/optim/optimizer.h"

/* Parameters of step t; skipped steps count. Computed in double, rounded once. */
static struct adam adam_of(const struct jobspec *s, int64_t t)
{
    return (struct adam){ .beta1 = (float)s->train_beta1,
                          .rest1 = (float)(1 - s->train_beta1),
                          .beta2 = (float)s->train_beta2,
                          .rest2 = (float)(1 - s->train_beta2),
                          .eps = (float)s->train_eps,
                          .unbias1 = (float)(1 / (1 - math_pow64(s->train_beta1, (double)t))),
                          .unbias2 = (float)(1 / sqrt(1 - math_pow64(s->train_beta2, (double)t))) };
}

static int adam_step(struct device *dev, const struct jobspec *spec, int64_t t, const struct optim_item *items, int nitems,
                     const struct clip *clip, struct err *err)
{
    const struct adam how = adam_of(spec, t);

    return dev->on->optim->adam(dev, items, nitems, &how, clip, err);
}

static int adamw_step(struct device *dev, const struct jobspec *spec, int64_t t, const struct optim_item *items, int nitems,
                      const struct clip *clip, struct err *err)
{
    const struct adam how = adam_of(spec, t);

    return dev->on->optim->adamw(dev, items, nitems, &how, clip, err);
}

const struct optimizer_kind optimizer_adam = { "adam", { "adam.m", "adam.v" }, adam_step };
const struct optimizer_kind optimizer_adamw = { "adamw", { "adam.m", "adam.v" }, adamw_step };
