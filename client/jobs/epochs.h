/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/epochs.h - converts epochs into steps: detd-worker counts the
 * images. */
#pragma once
#include <jansson.h>

struct err;
struct jobspec;

/* Converts `root`, the object form of s, for which jobspec_has_units() is true, and prints the result on stderr. file:
 * the job file, for messages. -EINTR: the user interrupted it. ERR_INPUT without a message: stderr says already why
 * images cannot be counted. */
int epochs_count(json_t *root, const struct jobspec *s, const char *file, struct err *err);
