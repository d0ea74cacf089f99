/* SPDX-License-Identifier: Apache-2.0 */ /* client/node/taken.h - which users' files take how much room below a folder. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;

enum { TAKEN_USERS = 256 };

struct taken {
    struct taken_by {
        uid_t uid;
        double bytes;  /* of the disk */
    } by[TAKEN_USERS]; /* most bytes first; users beyond the room are left out */
    int count;
    bool whole; /* false: time was over, or a folder could not be read; there may be more */
};

/* Asks for each file below the folder, on its file system, and follows no link. A user may have put a file system there
 * that never answers, so a child process asks, and is killed after so many seconds. 0, or why there is no child. */
int taken_below(const char *folder, int seconds, struct taken *ret, struct err *err);
