/* worker/checkpoint/owner.h - which job a checkpoint is of: the database that numbered the job, and those keys of the job file that decide results. */
#pragma once
#include "proto/hash.h"
#include "worker/checkpoint/ckpt.h"

struct err;
struct jobspec;

/* Those keys, as one text whose hash says whose a checkpoint is. NULL: out of memory. Caller frees with free(). */
char *owner_text(const struct jobspec *spec);
int owner_identity(const struct jobspec *spec, const char *store_id, struct ckpt_identity *ret, struct err *err);
/* Of a checkpoint in `dir` that ckpt_pick() found to be of another job, as *err says: no attempt can do better, so it is an error of the job. Names the
 * keys that differ, which a checkpoint of an earlier version tells only where it is older than a key. Returns the error. */
int owner_refuse(const struct jobspec *spec, const char *store_id, const char *dir, struct err *err);
/* Hash of jobspec_portable(): alike for jobs that are to give the same bits, wherever their files lie. */
int owner_keys(const struct jobspec *spec, struct hash128 *ret, struct err *err);
