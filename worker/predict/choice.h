/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/choice.h - chooses one of a job's checkpoints, and tells
 * why. */
#pragma once
#include <stdint.h>

struct err;

struct choice {
    int64_t step;
    char why[256]; /* "the lowest validation loss, 7.42612; the newest is of step 600" */
};

/* dir: the checkpoints folder. asked: a step; "last", the newest; or "best", which is the newest if no checkpoint was
 * validated. ERR_NOTFOUND: the checkpoint does not exist, or there is no checkpoint yet. ERR_INPUT: asked is something
 * else. */
int choice_make(const char *dir, const char *asked, struct choice *ret, struct err *err);
