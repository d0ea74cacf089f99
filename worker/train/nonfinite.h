/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/nonfinite.h - a job that ends because its numbers are not finite says where they are: every rank the same. */
#pragma once
#include <stdint.h>

struct course;
struct dataset;
struct device;
struct err;
struct gradients;
struct param;
struct task;

/* A loss term of a shard in `step`, at learning rate lr: ERR_NONFINITE that names its images, up to a few. task: of the training set d. Pure: any rank can name those of any. */
int nonfinite_loss(const struct course *course, const struct task *task, const struct dataset *d, int64_t step, int shard, const char *term,
                   float lr, struct err *err);
/* The gradient, `times` steps in a row: ERR_NONFINITE that names the first parameter in the model's order. */
int nonfinite_gradient(struct device *dev, const struct gradients *g, struct param *const *params, int nparams, int64_t step, int times,
                       float lr, struct err *err);
