/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/predict.h - finds a job's folder, for commands in which
 * detd-worker reads it. */
#pragma once
#include <stdint.h>

struct context;

/* The folder of the job; the caller frees. 0 or an exit code after complaining. */
int job_folder(struct context *ctx, int64_t id, char **ret);
