#include "worker/optim/schedule.h"

#include <math.h>

#include "worker/kernels/math.h"

float schedule_lr(const struct jobspec *spec, int64_t t)
{
    double lr = spec->train_lr;

    if (t < spec->train_burn_in)
        return (float)(lr * math_pow64((double)t / (double)spec->train_burn_in, spec->train_burn_in_power));
    for (int i = 0; i < spec->train_lr_steps.n; i++) {
        double at = spec->train_lr_steps.v[i];

        if (at < 1)
            at = floor(at * (double)spec->train_steps + 0.5);
        if (at <= (double)t)
            lr *= spec->train_lr_scale;
    }
    return (float)lr;
}

int schedule_due(int64_t every, int64_t t, int64_t steps)
{
    return every > 0 && (t % every == 0 || t == steps);
}
