/* SPDX-License-Identifier: Apache-2.0 */ /* worker/optim/schedule.h - the learning rate as a pure function of the step.
 * Sources: specs yolov3 section 6.2 (power), rcnn section 7.1 (linear), both of them for steps; Loshchilov and Hutter
 * 2017, arXiv:1608.03983 (cosine, one period); Chen et al. 2017, arXiv:1606.00915 (poly). */
#pragma once
#include <stdint.h>

#include "proto/job/jobspec.h"

/* Rate of step t (counted from 1). With warmup power, as darknet counts, i = t; with linear, as detectron2 and
 * torchvision count, i = t - 1. While i < burn_in, with p = i / burn_in: lr * p^power, or lr * (factor + (1 - factor) *
 * p). Then, by train.schedule:
 *   steps     lr times lr_scale for each of lr_steps that is <= i; entries below 1 are fractions of train.steps,
 *             rounded to the nearest step
 *   cosine    from lr to lr * lr_end in half a period, with (1 + cos(pi q)) / 2, and
 *   poly      with (1 - q)^poly_power, where q is the part of the steps from the end of the warm-up on that is done
 *             before t
 *   constant  lr
 * Computed in double, rounded once. */
float schedule_lr(const struct jobspec *spec, int64_t t);
/* Is an action that happens every `every` steps (0: never) and after the last step due when step t is done? */
int schedule_due(int64_t every, int64_t t, int64_t steps);
