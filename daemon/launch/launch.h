/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch.h - starting and killing supervisors. The only place
 * that forks for a job.
 *
 * A job's lock, jobs/<id>/lock, is held only by its supervisor and ranks: lock free <=> no process of the job lives.
 * detd opens and locks it, hands the descriptor to detd-job and closes its own copy. detd-job runs in a session of its
 * own and writes the session's id into the lock file.
 *
 * A job that runs as its submitter (it has a ticket, launcher.h) has jobs/<id> for itself. detd opens and looks at
 * nothing there, since its user decides what a path leads to: to a disk that never answers, say. detd's own files of
 * such a job, its lock, the name of its store and its end, are in held/<id>. The lock is handed on for locking only,
 * and detd writes down the session that it is told. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job/job.h"

struct err;
struct gpulocks;
struct store;

/* The end of a job without a spool. */
struct launch_end {
    enum job_state state; /* 0: it has not ended */
    char reason[JOB_REASON_MAX + 1];
};

struct launch_request {
    int64_t job;
    int attempt;
    int64_t last_seq;
    double submitted;
    char nonce[JOB_NONCE_LEN + 1];
    int threads, tier;                            /* written to spec.json */
    int slots;                                    /* weight of its scope */
    int64_t log_max;                              /* maximum bytes of each log; 0: no bound */
    const char *jobs_dir;                         /* borrowed, absolute */
    const char *store_id;                         /* borrowed */
    const struct gpulocks *gpu_locks;             /* borrowed; NULL: those of a user's daemon, and no ticket */
    char gpus[JOB_GPUS_MAX * (JOB_UUID_MAX + 1)]; /* UUIDs with commas, "": no GPU */
    enum job_state drain;                         /* not 0: passes on the reports of the spool and ends the job with this state */
    char reason[120];                             /* reason of that end */
    int64_t saved;                                /* newest checkpoint known to detd */
    int64_t ran_s;                                /* seconds that count against run.time_limit */
    char ticket[LAUNCH_TICKET_HEX + 1];           /* "": runs as detd's own user */
    int lock_fd, spec_fd; /* out, with a ticket: the lock, taken, and the stored spec, a sealed file of memory; valid until launch_drop() */
    int gpu_fds[JOB_GPUS_MAX], ngpu_fds; /* the same: the locks of its GPUs, taken, up to the first that another daemon has */
    char busy[256];                      /* out: the holder of that lock */
    char moved[80];                      /* out: the new name of a folder that another job had left here; "": there was no such folder */
    struct launch_end end;               /* out */
    bool unusable;                       /* out, of an error: the cause is in the job's folder, and not in the node */
    bool anew;                           /* out: it had ended and was queued again; the spool was removed after that end */
};

/* A supervisor that was started. */
struct launched;

/* For a thread: makes the job's folder and its spec.json (from the store), opens and locks the lock, and starts
 * detd-job, which is beside this program, with it. If *stop is set by then, nothing is started and *ret stays NULL.
 * -EWOULDBLOCK: processes of the job live, err names one. -ENODATA: it had a spool that is missing; `end` says how it
 * ended, if it did. A job with a ticket is only prepared, for launcher_start(). */
int launch_start(struct store *s, struct launch_request *rq, const atomic_bool *stop, struct launched **ret, struct err *err);
/* Closes the descriptors of a prepared request. */
void launch_drop(const struct launch_request *rq);
/* In place of a status: the exit can no longer be observed, and the supervisor may live. */
enum { LAUNCH_UNWATCHED = -1 };
/* Runs on the loop when a supervisor has left. status: SUP_EXIT_... (proto/report.h), or any other. why: the
 * supervisor's message, "": no message; with LAUNCH_UNWATCHED the reason for that. */
typedef void launch_exit(void *arg, int64_t job, int status, const char *why);
/* On the loop. Takes the supervisor in every case. Error: its exit will not be reported, only its lock shows it. */
int launch_watch(uv_loop_t *loop, struct launched *l, launch_exit *on_exit, void *arg);
/* No process of the job lives: makes new locks of the job and its GPUs if the old ones are still held, so that holding
 * them has no effect. gpus: UUIDs with commas. */
void launch_renew_locks(const char *jobs_dir, int64_t job, const struct gpulocks *locks, const char *gpus);
/* Writes down the session of a job with a ticket. */
void launch_note_session(const char *jobs_dir, int64_t job, long session);
/* Drops the data about a supervisor that runs on; for the end of the daemon. */
void launch_forget(uv_poll_t *poll);
/* True: no process of the job lives. A job without a folder never had one. */
bool launch_lock_is_free(const char *jobs_dir, int64_t job);
/* Whether the job has a spool, which may hold reports. Also true if that cannot be found out. The folder of a job with
 * a ticket is not looked into: it counts as having a spool if detd-launch has ever told that it was started. */
bool launch_has_spool(const char *jobs_dir, int64_t job);
/* Whether the checkpoint of that step is on the disk. Also true if that cannot be found out, and for each job with a
 * ticket. row: id, ticket. */
bool launch_has_checkpoint(const char *jobs_dir, const struct job_row *row, int64_t step);
/* Removes the spool of a job of this database that has ended in the state of row, if no process of it lives; otherwise
 * does nothing. Its folder keeps a note of the end, for a detd that finds an older copy of the database. File work. */
void launch_drop_spool(const char *jobs_dir, const struct job_row *row, const char *store_id);
/* Writes down the end of a job, with its last report, and that it is to be queued again. Without that its start would
 * find that it has ended. File work. */
int launch_note_again(const char *jobs_dir, const struct job_row *row, struct err *err);
/* For the functions below: the folder must belong to the job with the id, submitted and attempt of row. The remains of
 * another job with that number, of this or another database, stay. They return -EWOULDBLOCK while processes of the job
 * live. For a job that ran as its submitter they return LAUNCH_ITS_USERS, and remove nothing, while the folder holds
 * files that detd may not remove. File work. */
enum { LAUNCH_ITS_USERS = -20900 };
/* Removes at most `max` entries of the folder of a removed job. Returns 1 if there are more, 0 if the folder is gone.
 * The folder is renamed to jobs/<id>.removed before the first entry is removed. */
int launch_remove_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int max, struct err *err);
/* The highest number in a name of jobs/ and held/: of a job's folder, or of one that was renamed. They outlive their
 * rows if an older database is put back. File work. */
int launch_highest(const char *jobs_dir, int64_t *ret, struct err *err);
/* Reads the ticket of a job that ran as its submitter, and takes its lock; caller closes *ret_lock. ret: of
 * LAUNCH_TICKET_HEX + 1. */
int launch_held_ticket(const char *jobs_dir, int64_t job, char *ret, int *ret_lock, struct err *err);
/* Removes the logs of a job that has ended, and its checkpoints except that of step `keep`. ERR_STATE, and nothing is
 * removed, if there are other checkpoints but not that one. */
int launch_thin_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int64_t keep, struct err *err);
/* Removes only the logs. */
int launch_drop_logs(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err);
/* Writes down what a user wishes of the job (JOB_WANT_RUN: nothing) while the store has no room for it, in a block that
 * was made with its lock. False: the job has never been started, or its file system needs more room. row: id,
 * submitted, attempt. */
bool launch_note_want(const char *jobs_dir, const struct job_row *row, const char *store_id, enum job_want want);
/* Reads that note. Returns JOB_WANT_RUN if the job has no note. */
enum job_want launch_noted_want(const char *jobs_dir, const struct job_row *row, const char *store_id);
/* Session of the job's processes, as its lock says; 0: not known. */
long launch_session(const char *jobs_dir, int64_t job);
/* For a thread: looks at all processes. Sends SIGKILL to the job's session, and to every other process that holds its
 * lock. Only while the lock is held; and to the session only after one of its processes was seen with the lock. Returns
 * the number of processes; `ret` names one: "process 12 (name, state D)", or is "". */
int launch_kill(const char *jobs_dir, int64_t job, char *ret, size_t size);
/* Folder of this program, without a slash at the end. */
int launch_program_dir(char *ret, size_t size, struct err *err);
