/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/place.h - whether one more job of a user fits the bounds of
 * live jobs and of the database. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;
struct jobs;
struct user_share;

/* For a job that is about to be submitted or queued again by a user. The caller must give the place back when the job
 * is stored or refused; a stored job counts itself. ERR_STATE: a bound is reached. */
int place_take(struct jobs *jobs, uid_t uid, bool admin, struct user_share **ret, struct err *err);
/* NULL is allowed. */
void place_give_back(struct user_share *share);
