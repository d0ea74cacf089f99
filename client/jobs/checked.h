/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/checked.h - good checks of data and weights, remembered in the caller's cache folder till a file that they rest on is changed. */
#pragma once
#include <limits.h>
#include <stdbool.h>

struct jobspec;

enum { CHECKED_MAX = 64, CHECKED_MAX_BYTES = 64 << 20 }; /* so many are kept */

/* The file for the check of such a job by this detd-worker: $XDG_CACHE_HOME/detd/checks/HASH, else in ~/.cache; folders are made. Jobs that differ in
 * what the check does not look at, as train.lr, have the same one. False: no folder of the caller's is there to hold it, or who checks may not write
 * there. */
bool checked_path(const struct jobspec *s, const char *worker, char ret_path[PATH_MAX]);
/* Whether that check was good and each file that it rests on has the size and the time that it had. */
bool checked_still(const char *path);
/* Removes the oldest beside `path` where they are more than the limits; several callers may do so at once. */
void checked_prune(const char *path);
