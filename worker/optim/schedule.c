#include "worker/optim/schedule.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "worker/kernels/math.h"

/* Darknet counts the current step. detectron2 and torchvision count the steps before it. */
static bool counts_from_0(const struct jobspec *spec)
{
    return strcmp(spec->train_warmup, "linear") == 0;
}

static double warm_up(const struct jobspec *spec, double done)
{
    if (counts_from_0(spec))
        return spec->train_warmup_factor + (1 - spec->train_warmup_factor) * done;
    return math_pow64(done, spec->train_burn_in_power);
}

static double falling_steps(const struct jobspec *spec, int64_t i)
{
    double factor = spec->train_lr;

    for (int k = 0; k < spec->train_lr_steps.n; k++) {
        double at = spec->train_lr_steps.v[k];

        if (at < 1)
            at = floor(at * (double)spec->train_steps + 0.5);
        if (at <= (double)i)
            factor *= spec->train_lr_scale;
    }
    return factor;
}

/* The fraction of the steps after warm-up that precede step t. It is never 1, so that the last step still changes the
 * weights. */
static double part_done(const struct jobspec *spec, int64_t t)
{
    int64_t before = counts_from_0(spec) || spec->train_burn_in == 0 ? spec->train_burn_in : spec->train_burn_in - 1;

    return (double)(t - 1 - before) / (double)(spec->train_steps - before);
}

float schedule_lr(const struct jobspec *spec, int64_t t)
{
    const char *form = spec->train_schedule;
    int64_t i = counts_from_0(spec) ? t - 1 : t;
    double left; /* from 1 down to 0, on the way to lr_end */

    if (i < spec->train_burn_in)
        return (float)(spec->train_lr * warm_up(spec, (double)i / (double)spec->train_burn_in));
    if (strcmp(form, "steps") == 0)
        return (float)falling_steps(spec, i);
    if (strcmp(form, "cosine") == 0)
        left = 0.5 * (1 + math_cos_turns64(0.5 * part_done(spec, t)));
    else if (strcmp(form, "poly") == 0)
        left = math_pow64(1 - part_done(spec, t), spec->train_poly_power);
    else
        left = 1;
    return (float)(spec->train_lr * (spec->train_lr_end + (1 - spec->train_lr_end) * left));
}

int schedule_due(int64_t every, int64_t t, int64_t steps)
{
    return every > 0 && (t % every == 0 || t == steps);
}
