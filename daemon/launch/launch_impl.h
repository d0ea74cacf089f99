/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_impl.h - declarations that only launch*.c share. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct err;
struct job_row;
struct launch_request;

enum { LAUNCH_PATH_ROOM = 4096 + 64 };

/* Paths; ret: of LAUNCH_PATH_ROOM; name "": the folder itself. This one is in the folder of the job. */
void launch_job_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* In the folder with detd's own files of a job: the job's folder or, if that is its submitter's, held/<id>. */
void launch_own_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* In held/<id>, whether it exists or not. */
void launch_held_path(char *ret, const char *jobs_dir, int64_t job, const char *name);
/* Whether held/<id> exists: the job has run as its submitter, or was to. */
bool launch_is_held(const char *jobs_dir, int64_t job);
/* Whether the folder exists. *ret_ours, unless NULL: whether it belongs to detd's own user, or does not exist. Also
 * for a folder on which a user may have mounted something. */
bool launch_is_there(const char *folder, bool *ret_ours);
/* Whether the folder of the job is not to be looked into: the job has run as its submitter, or the folder belongs to
 * another user. false on a daemon that never ran jobs as their submitters. */
bool launch_is_users(const char *jobs_dir, int64_t job);
/* Opens a plain file in a job's folder. The job's trainer may have put something else there, such as a FIFO; it must
 * not block the thread, which serves all launches. < 0, NULL: errno. */
int launch_open_plain(const char *path, int flags);
FILE *launch_read_plain(const char *path);
/* 1: no process of the job lives, and *ret_fd has its lock (-1 if there is no such file); 0: a process lives; < 0:
 * error. Caller closes *ret_fd. */
int launch_lock_state(const char *jobs_dir, int64_t job, int *ret_fd);
/* 1: the folder of that number belongs to the job of that database; 0: it belongs to another job, or does not exist; <
 * 0: it cannot be read. A folder without a database's name is older than these names, and belongs to the job if that
 * had an attempt. row: id, submitted, attempt. */
int launch_is_of(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err);

/* The owner that each folder names: the database that numbered the job, and the time of submission. A restored copy of
 * a database gives numbers a second time. */
struct launch_owner {
    char store_id[64]; /* "old": the folder has no name */
    double submitted;  /* 0: the folder has no time */
};

/* No error if the folder has neither. */
int launch_read_owner(const char *jobs_dir, int64_t job, struct launch_owner *ret, struct err *err);
int launch_write_owner(const struct launch_request *rq, struct err *err);
bool launch_owner_is(const struct launch_owner *o, const char *store_id, double submitted);
bool launch_is_of_another(const struct launch_request *rq, const struct launch_owner *o);
/* Renames the folder. The new name, rq->moved, has the database or, if that is this one, the time of submission of its
 * job. */
int launch_move_aside(struct launch_request *rq, const struct launch_owner *o, struct err *err);
/* Makes the file that launch_renew_locks() puts in place of the lock of a job with a ticket, unless it is there. */
void launch_make_spare_lock(const char *jobs_dir, int64_t job);
/* Writes a file. After a failure or kill, it has either all of the text or its old contents. */
int launch_write_durably(const char *path, const char *text, struct err *err);
