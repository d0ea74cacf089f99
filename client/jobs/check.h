/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/check.h - checks the data and weights of a job before it is
 * queued. */
#pragma once
#include <jansson.h>

/* Checks the data and weights of a job in the same way as detctl check, by detd-worker, as the caller; spec has
 * absolute paths. Prints the first warnings on stderr, and progress if the check takes longer than 2 s. Does not repeat
 * a remembered check. Without detd-worker it checks nothing, says so, and returns 0. Returns 0, or an exit code after
 * complaining: CODE_REFUSED, CODE_INTERRUPTED. */
int check_first(const json_t *spec);
