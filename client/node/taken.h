/* SPDX-License-Identifier: Apache-2.0 */ /* client/node/taken.h - which users' files take how much room below a
 * folder. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

enum { TAKEN_USERS = 256 };

struct taken {
    struct taken_by {
        uid_t uid;
        double bytes;  /* of the disk */
    } by[TAKEN_USERS]; /* most bytes first; users beyond the room are left out */
    int count;
};

/* Looks at each file below the folder for at most so many seconds. Follows no link, and never asks a file system that a
 * user has mounted there: it may not answer. False: time was over, or a folder could not be read; there may be more. */
bool taken_below(const char *folder, int seconds, struct taken *ret);
