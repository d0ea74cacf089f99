/* SPDX-License-Identifier: Apache-2.0 */ /* launch/args.h - the arguments of a detd-job that runs as its submitter. */
#pragma once
#include "proto/launch.h"

enum { ARGS_LOCK_FD = 3, ARGS_TROUBLE_FD, ARGS_SPEC_FD, ARGS_GPU_FD, ARGS_MAX = 40 };

/* Makes the arguments for a checked START or CLEAR. ngpu_locks: descriptors from ARGS_GPU_FD on. The list ends with
 * NULL and is never freed, since a process makes only one. -ENOMEM. */
int args_fill(char *ret[ARGS_MAX], const char *program, const struct launch_ask *a, int ngpu_locks);
