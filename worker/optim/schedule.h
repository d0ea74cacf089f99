/* worker/optim/schedule.h - the learning rate as a pure function of the step. Source: specs yolov3 section 6.2. */
#pragma once
#include <stdint.h>

#include "proto/jobspec.h"

/* Rate of step t (counted from 1): lr * (t / burn_in)^power while t < burn_in, then lr times lr_scale for each of lr_steps that is <= t.
 * Entries of lr_steps below 1 are fractions of train.steps, rounded to the nearest step. Computed in double, rounded once. */
float schedule_lr(const struct jobspec *spec, int64_t t);
/* Whether something that happens every `every` steps (0: never), and after the last step, is due once step t is done. */
int schedule_due(int64_t every, int64_t t, int64_t steps);
