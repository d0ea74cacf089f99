/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/eval_name.h - detects a name of a set that has been used for
 * several files. */
#pragma once
#include <stdint.h>

struct context;

/* To be called after an evaluation of the job under the name `set`. Prints a note on stderr if the evaluation before it
 * with that name was of another file: its results are mixed with the new ones, or were replaced. A failed query only
 * causes a complaint. */
void eval_name_tell(struct context *ctx, int64_t job, const char *set);
