/* daemon/launch_impl.h - what launch*.c share; nobody else includes it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* 1: no process of the job lives, and its lock is taken with *ret_fd (-1 where there is no such file); 0: one lives; < 0: error. Caller closes. */
int launch_lock_state(const char *jobs_dir, int64_t job, int *ret_fd);
/* Whether the folder is of the database's job. One without a database's name is of the time before there were names. */
bool launch_is_ours(const char *jobs_dir, int64_t job, const char *store_id);
