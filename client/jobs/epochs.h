/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/epochs.h - epochs become steps: detd-worker counts the images. */
#pragma once
#include <jansson.h>

struct err;
struct jobspec;

/* Changes `root`, the object form of s, of which jobspec_has_units() is true, and says on stderr what became of it. file: the job file, for messages. -EINTR: the user
 * would not wait. ERR_INPUT without a message: why images cannot be counted was said on stderr. */
int epochs_count(json_t *root, const struct jobspec *s, const char *file, struct err *err);
