/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/nonfinite.h - errors for a job that ends because its numbers
 * are not finite; they name the place, the same on every rank. */
#pragma once
#include <stdint.h>

struct course;
struct dataset;
struct device;
struct err;
struct gradients;
struct param;
struct task;

/* For a loss term of a shard in `step`, at learning rate lr: ERR_NONFINITE that names its images, up to a few. task: of
 * the training set d. Pure: any rank can name the images of any shard. */
int nonfinite_loss(const struct course *course, const struct task *task, const struct dataset *d, int64_t step, int shard, const char *term,
                   float lr, struct err *err);
/* For the gradient, `times` steps in a row: ERR_NONFINITE that names the first parameter in the model's order. */
int nonfinite_gradient(struct device *dev, const struct gradients *g, struct param *const *params, int nparams, int64_t step, int times,
                       float lr, struct err *err);
