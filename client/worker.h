/* SPDX-License-Identifier: Apache-2.0 */ /* client/worker.h - runs detd-worker, found beside detctl, as the caller: it reads data and draws pictures, detd never does. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Where it is. False with errno: it cannot be run. */
bool worker_path(char ret_path[PATH_MAX]);
/* argv[0] is ignored; the list ends with NULL. Its output is the user's. 0, CODE_REFUSED when it failed, or CODE_INTERRUPTED. */
int worker_run(char **argv);
/* The same for an option that prints a whole number above 0. */
int worker_count(char **argv, int64_t *ret_count);
