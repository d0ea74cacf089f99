/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/worker.h - runs detd-worker, found beside detctl, as the caller: it reads data and draws pictures, detd never does.
 * For root it runs as the owner of the first file or folder in argv that is another user's (of pictures, behind "--", also in a folder or by a pattern), and stderr says so: what others wrote is not parsed with root's rights. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Where it is. False with errno: it cannot be run. */
bool worker_path(char ret_path[PATH_MAX]);
/* The caller is root, and the file, or the folder or something in it, is another user's: *ret says whose. */
bool worker_is_of_another(const char *path, struct stat *ret);
/* argv[0] is ignored; the list ends with NULL. Its output is the user's. 0, CODE_REFUSED when it failed, or CODE_INTERRUPTED. */
int worker_run(char **argv);
/* The same where what it will read is `owner`'s though argv does not name it; NULL: nobody's but argv's. */
int worker_run_for(const struct stat *owner, char **argv);
/* The same for an option that prints a whole number above 0. */
int worker_count(char **argv, int64_t *ret_count);
