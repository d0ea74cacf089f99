/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/checkpoint.h - finds a checkpoint in detd's list by a word of the user. */
#pragma once
#include <jansson.h>

/* Finds a checkpoint that is still on the disk in job.get's list, which has the newest first. `which` is "best", "last"
 * or a step; "" or NULL: the best, or the newest if no checkpoint was validated. NULL: there is no such checkpoint.
 * Borrowed. */
const json_t *checkpoint_find(const json_t *checkpoints, const char *which);
