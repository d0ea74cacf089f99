/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/limits.h - the soft resource limits of a process (setrlimit), by
 * name, as of ulimit: {"nofile": 1024, "stack": 8388608, "cpu": -1}; -1: none. */
#pragma once
#include <jansson.h>

/* Those of this process. A new reference; NULL: out of memory. */
json_t *limits_now(void);
/* Sets those that are named, as far as the hard limits of this process allow. Allocates nothing. */
void limits_set(const json_t *limits);
/* The first name that is no limit, borrowed; NULL: there is none. */
const char *limits_unknown(const json_t *limits);
