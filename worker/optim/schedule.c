#include "worker/optim/schedule.h"

#include <math.h>
#include <string.h>

#include "worker/kernels/math.h"

static double warm_up(const struct jobspec *spec, double done)
{
    if (strcmp(spec->train_warmup, "linear") == 0)
        return spec->train_warmup_factor + (1 - spec->train_warmup_factor) * done;
    return math_pow64(done, spec->train_burn_in_power);
}

static double falling_steps(const struct jobspec *spec, int64_t t)
{
    double factor = spec->train_lr;

    for (int i = 0; i < spec->train_lr_steps.n; i++) {
        double at = spec->train_lr_steps.v[i];

        if (at < 1)
            at = floor(at * (double)spec->train_steps + 0.5);
        if (at <= (double)t)
            factor *= spec->train_lr_scale;
    }
    return factor;
}

/* The part of the steps from the end of the warm-up on that is done before step t: never 1, so that the last step still moves. */
static double part_done(const struct jobspec *spec, int64_t t)
{
    int64_t before = spec->train_burn_in > 0 ? spec->train_burn_in - 1 : 0;

    return (double)(t - 1 - before) / (double)(spec->train_steps - before);
}

float schedule_lr(const struct jobspec *spec, int64_t t)
{
    const char *form = spec->train_schedule;
    double left; /* of 1, on the way down to lr_end */

    if (t < spec->train_burn_in)
        return (float)(spec->train_lr * warm_up(spec, (double)t / (double)spec->train_burn_in));
    if (strcmp(form, "steps") == 0)
        return (float)falling_steps(spec, t);
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
