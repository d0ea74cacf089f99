/* daemon/launch_impl.h - what launch*.c share; nobody else includes it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct err;
struct job_row;

/* 1: no process of the job lives, and its lock is taken with *ret_fd (-1 where there is no such file); 0: one lives; < 0: error. Caller closes. */
int launch_lock_state(const char *jobs_dir, int64_t job, int *ret_fd);
/* 1: the folder of that number is the job's of that database; 0: it is another job's, or there is none; < 0: that cannot be read. One without a database's name is
 * of the time before there were names, and a job's that had an attempt. row: id, submitted, attempt. */
int launch_is_of(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err);
