/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/checkpoint.h - which checkpoint of a job is meant, of those that detd lists. */
#pragma once
#include <jansson.h>

/* Of job.get's checkpoints, which come newest first, one that is still on the disk: which is "best", "last" or a step; "" or NULL: the best, and the newest where
 * none was validated. NULL: there is none. Borrowed. */
const json_t *checkpoint_find(const json_t *checkpoints, const char *which);
