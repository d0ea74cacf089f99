/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/owner.h - the owner of a checkpoint: the database that
 * numbered the job, and the keys of the job file that decide results. */
#pragma once
#include "proto/hash/hash.h"
#include "worker/checkpoint/ckpt.h"

struct err;
struct jobspec;

/* Those keys, as one text; its hash identifies the owner of a checkpoint. NULL: out of memory. Caller frees with
 * free(). */
char *owner_text(const struct jobspec *spec);
int owner_identity(const struct jobspec *spec, const char *store_id, struct ckpt_identity *ret, struct err *err);
/* For a checkpoint in `dir` that ckpt_pick() found to be another job's, as *err tells: no further attempt can help, so
 * it is an error of the job. Names the keys that differ. Returns the error. */
int owner_refuse(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err);
/* For a job that was given more steps since: picks the newest checkpoint in `dir` that this job made with fewer steps,
 * at a step where both would be the same (jobspec_on_the_way()). Newer checkpoints are deleted, as their steps come out
 * differently. ERR_STATE: there is no such checkpoint, or the newest is from a job with more differences; nothing is
 * deleted. Rank 0. */
int owner_pick_shorter(const struct jobspec *spec, const char *store_id, const char *dir, int64_t *ret_step, struct err *err);
/* Hash of jobspec_portable(): equal for jobs that must give the same bits, wherever their files lie. */
int owner_keys(const struct jobspec *spec, struct hash128 *ret, struct err *err);
