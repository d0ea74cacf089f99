/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/check.h - data and weights of a job are checked before it is queued. */
#pragma once
#include <jansson.h>

/* Checks the data and weights of a job as detctl check does, by detd-worker, as the caller; spec has absolute paths. Prints the first warnings on stderr, and
 * progress where the check takes longer than 2 s. A remembered check is not repeated. Without detd-worker it checks
 * nothing, says so, and returns 0. 0, or an exit code after complaining: CODE_REFUSED, CODE_INTERRUPTED. */
int check_first(const json_t *spec);
