/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/worker.h - runs detd-worker, which is beside detctl, as the caller: it reads data
 * and draws pictures; detd never does.
 *
 * For root it runs as the owner of the first file or folder in argv that belongs to another user, so that root's rights
 * are not used on files of other users; stderr says so. Words after "--" are pictures: there it also looks into folders
 * and patterns. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The path of detd-worker. False with errno: it cannot be run. */
bool worker_path(char ret_path[PATH_MAX]);
/* True if the caller is root, and the file, or the folder or an entry of it, belongs to another user. *ret gives the
 * owner. */
bool worker_is_of_another(const char *path, struct stat *ret);
/* Runs detd-worker; the user sees its output. argv[0] is ignored; the list ends with NULL. Returns 0, CODE_REFUSED when
 * it failed, or CODE_INTERRUPTED. */
int worker_run(char **argv);
/* The same, if it will read files of `owner` that argv does not name; NULL: only those in argv. */
int worker_run_for(const struct stat *owner, char **argv);
/* The same, for an option that prints a whole number above 0. */
int worker_count(char **argv, int64_t *ret_count);
