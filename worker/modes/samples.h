/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/samples.h - what `detctl sample` draws: what the network of a job sees in its first steps, as it is trained on. */
#pragma once
#include <stdio.h>

struct err;
struct jobspec;
struct model_registry;

/* The first `count` samples of the job, augmented as they are in training, as folder/sample-001.png and so on: pictures with boxes and masks, or frames side by
 * side, the one whose depth is learned first. The folder is made where it is not there; a file of that name that detd has not written is an error. Prints a line
 * for each. */
int samples_draw(const struct model_registry *models, const struct jobspec *spec, int count, const char *folder, FILE *out,
                 struct err *err);
