/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/owner.h - which job a checkpoint is of: the database that numbered the job, and those keys of the job file that decide results. */
#pragma once
#include "proto/hash/hash.h"
#include "worker/checkpoint/ckpt.h"

struct err;
struct jobspec;

/* Those keys, as one text whose hash says whose a checkpoint is. NULL: out of memory. Caller frees with free(). */
char *owner_text(const struct jobspec *spec);
int owner_identity(const struct jobspec *spec, const char *store_id, struct ckpt_identity *ret, struct err *err);
/* Of a checkpoint in `dir` that ckpt_pick() found to be of another job, as *err says: no attempt can do better, so it is an error of the job. Names the
 * keys that differ. Returns the error. */
int owner_refuse(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err);
/* A job that was given more steps since: the newest checkpoint in `dir` that this job with fewer of them has made, at a step where it would be the same with these
 * (jobspec_on_the_way()). Newer ones go, as they are of steps that come out differently. ERR_STATE, and nothing goes: there is none, or the newest is of a job
 * that differs in more. Rank 0. */
int owner_pick_shorter(const struct jobspec *spec, const char *store_id, const char *dir, int64_t *ret_step, struct err *err);
/* Hash of jobspec_portable(): alike for jobs that are to give the same bits, wherever their files lie. */
int owner_keys(const struct jobspec *spec, struct hash128 *ret, struct err *err);
