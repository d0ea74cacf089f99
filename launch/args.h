/* launch/args.h - the arguments of detd-job, as its submitter. */
#pragma once
#include "proto/launch.h"

enum { ARGS_LOCK_FD = 3, ARGS_TROUBLE_FD = 4, ARGS_SPEC_FD = 5, ARGS_MAX = 40 };

/* Of a START or CLEAR that was checked. Ends with NULL; those of one process are never freed. -ENOMEM. */
int args_fill(char *ret[ARGS_MAX], const char *program, const struct launch_ask *a);
