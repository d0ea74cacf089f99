/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/samples.h - draws for `detctl sample`: the inputs of a job's
 * network in its first steps of training. */
#pragma once
#include <stdio.h>

struct err;
struct jobspec;
struct model_registry;

/* Draws the first `count` samples of the job, augmented as in training, to folder/sample-001.png and so on: pictures
 * with boxes and masks, or frames side by side, beginning with the target of the depth. The folder is made if it is
 * missing; a file of that name that detd has not written is an error. Prints a line for each. */
int samples_draw(const struct model_registry *models, const struct jobspec *spec, int count, const char *folder, FILE *out,
                 struct err *err);
