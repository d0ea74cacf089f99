/* SPDX-License-Identifier: Apache-2.0 */ /* launch/args.h - the arguments of detd-job, as its submitter. */
#pragma once
#include "proto/launch.h"

enum { ARGS_LOCK_FD = 3, ARGS_TROUBLE_FD, ARGS_SPEC_FD, ARGS_GPU_FD, ARGS_MAX = 40 };

/* Of a START or CLEAR that was checked; ngpu_locks: from ARGS_GPU_FD on. Ends with NULL; those of one process are never freed. -ENOMEM. */
int args_fill(char *ret[ARGS_MAX], const char *program, const struct launch_ask *a, int ngpu_locks);
