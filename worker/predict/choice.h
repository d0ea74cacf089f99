/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/choice.h - which of a job's checkpoints is taken, and why. */
#pragma once
#include <stdint.h>

struct err;

struct choice {
    int64_t step;
    char why[256]; /* "the lowest validation loss, 7.42612; the newest is of step 600" */
};

/* dir: the checkpoints folder. asked: a step; "last", the newest; or "best", which is the newest where none was validated. ERR_NOTFOUND: it is not there, or
 * none is there yet. ERR_INPUT: asked is none of these. */
int choice_make(const char *dir, const char *asked, struct choice *ret, struct err *err);
