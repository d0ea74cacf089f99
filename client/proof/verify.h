/* SPDX-License-Identifier: Apache-2.0 */ /* client/proof/verify.h - trains a step of a run again, by a job. */
#pragma once
#include <stdint.h>

struct context;
struct run;

/* Queues a job that trains this step again, compares it with the run's evidence and keeps the hashes of its tensors and
 * shards. 0 with *ret_id, or an exit code after complaining. */
int verify_step(struct context *ctx, const struct run *r, int64_t step, int64_t *ret_id);
