/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_impl.h - what launch*.c share; nobody else includes it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct err;
struct job_row;
struct launch_request;

enum { LAUNCH_PATH_ROOM = 4096 + 64 };

/* ret: of LAUNCH_PATH_ROOM; name "": the folder. In the folder of the job: */
void launch_job_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* What detd keeps of a job: in its folder or, where that is its submitter's, in one of our own. */
void launch_own_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* That of our own, whether it is there or not. */
void launch_held_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* What a job's trainer may have put into its folder, as a FIFO, is no file, and must hold nothing up: this is the thread of all launches. < 0, NULL: errno. */
int launch_open_plain(const char *path, int flags);
FILE *launch_read_plain(const char *path);
/* 1: no process of the job lives, and its lock is taken with *ret_fd (-1 where there is no such file); 0: one lives; < 0: error. Caller closes. */
int launch_lock_state(const char *jobs_dir, int64_t job, int *ret_fd);
/* 1: the folder of that number is the job's of that database; 0: it is another job's, or there is none; < 0: that cannot be read. One without a database's name is
 * of the time before there were names, and a job's that had an attempt. row: id, submitted, attempt. */
int launch_is_of(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err);

/* Each folder says whose it is: the database that numbered the job, and when the job was submitted, since a copy of the database that is put back gives
 * numbers a second time. */
struct launch_owner {
    char store_id[64]; /* "old": the folder does not say */
    double submitted;  /* 0: likewise */
};

/* No error where the folder does not say it. */
int launch_read_owner(const char *jobs_dir, int64_t job, struct launch_owner *ret, struct err *err);
int launch_write_owner(const struct launch_request *rq, struct err *err);
bool launch_owner_is(const struct launch_owner *o, const char *store_id, double submitted);
bool launch_is_of_another(const struct launch_request *rq, const struct launch_owner *o);
/* Its name says then of which database it is, or, of this one, when its job was submitted: rq->moved. */
int launch_move_aside(struct launch_request *rq, const struct launch_owner *o, struct err *err);
/* The file has all of the text, or what it had before. */
int launch_write_durably(const char *path, const char *text, struct err *err);
