/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/worker.h - runs detd-worker, which is beside detctl, as the
 * caller: it reads data and draws pictures; detd never does. */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* The path of detd-worker. False with errno: it cannot be run. */
bool worker_path(char ret_path[PATH_MAX]);
/* Runs detd-worker; the user sees its output. argv[0] is ignored; the list ends with NULL. Returns 0, CODE_REFUSED when
 * it failed, or CODE_INTERRUPTED. */
int worker_run(char **argv);
/* The same, for an option that prints a whole number above 0. */
int worker_count(char **argv, int64_t *ret_count);
