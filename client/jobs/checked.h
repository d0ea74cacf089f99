/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/checked.h - remembers successful checks of data and weights in
 * the caller's cache folder, until a file that they depend on changes. */
#pragma once
#include <limits.h>
#include <stdbool.h>

struct jobspec;

enum { CHECKED_MAX = 64, CHECKED_MAX_BYTES = 64 << 20 }; /* limits of the kept files */

/* The file for the check of such a job by this detd-worker: $XDG_CACHE_HOME/detd/checks/HASH, or in ~/.cache; makes the
 * folders. Jobs that differ only in keys that the check ignores, such as train.lr, have the same file. False: the
 * caller has no such folder, or the user that runs the check may not write there. */
bool checked_path(const struct jobspec *s, const char *worker, char ret_path[PATH_MAX]);
/* Whether that check succeeded and each file that it depends on has the same size and time as then. */
bool checked_still(const char *path);
/* Removes the oldest files beside `path` above the limits; several callers may do so at once. */
void checked_prune(const char *path);
