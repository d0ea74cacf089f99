/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/checkpoint.h - checkpoints of a job as detd lists them: those
 * that are missing, and one by a word of the user. */
#pragma once
#include <jansson.h>

/* In an answer of job.get: sets `there` of each checkpoint that is missing. detd does not look into folders of users.
 * Nor does this function, except the caller's own: a path in another user's folder may lead to a disk that never
 * answers. */
void checkpoints_look(json_t *job);
/* Finds a checkpoint that is still on the disk in job.get's list, which has the newest first. `which` is "best", "last"
 * or a step; "" or NULL: the best, or the newest if no checkpoint was validated. NULL: there is no such checkpoint.
 * Borrowed. */
const json_t *checkpoint_find(const json_t *checkpoints, const char *which);
