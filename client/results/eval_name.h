/* SPDX-License-Identifier: Apache-2.0 */ /* client/results/eval_name.h - which files' results one name of a set has had. */
#pragma once
#include <stdint.h>

struct context;

/* After an evaluation of the job under the name `set`: says on stderr where the one before it under that name was of another file, whose results lie among
 * those of this one or were replaced. A note: what cannot be asked is complained about, and ends nothing. */
void eval_name_tell(struct context *ctx, int64_t job, const char *set);
