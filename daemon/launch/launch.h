/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch.h - starting and killing supervisors. The only place that forks for a job.
 *
 * A job's lock, jobs/<id>/lock, is held by its supervisor and ranks and by nothing else: lock free <=> no process of the job lives. detd opens and locks it,
 * hands the descriptor to detd-job and closes its own copy. detd-job runs in a session of its own and writes the session's id into the lock file.
 *
 * A job that runs as its submitter (it has a ticket, launcher.h) has jobs/<id> for itself, and detd cannot look into it. What is detd's own of such a job, its
 * lock, the name of its store and its end, lies in held/<id>; the lock is handed on for locking alone, and detd writes down the session that it is told. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job/job.h"

struct err;
struct gpulocks;
struct store;

/* How a job ended whose spool is gone. */
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
    int threads, tier;                            /* go into spec.json */
    int64_t log_max;                              /* bytes of each log of it; 0: no bound */
    const char *jobs_dir;                         /* borrowed, absolute */
    const char *store_id;                         /* borrowed */
    const struct gpulocks *gpu_locks;             /* borrowed; NULL: as a user's daemon has them, and no ticket */
    char gpus[JOB_GPUS_MAX * (JOB_UUID_MAX + 1)]; /* UUIDs with commas, "": none */
    enum job_state drain;                         /* not 0: gives detd what the spool holds and ends the job so */
    char reason[120];                             /* of that end */
    int64_t saved;                                /* newest checkpoint that detd has */
    int64_t ran_s;                                /* seconds that count against run.time_limit */
    char ticket[LAUNCH_TICKET_HEX + 1];           /* "": runs as detd's own user */
    int lock_fd, spec_fd; /* out, with a ticket: the lock, taken, and the stored spec, a sealed file of memory; till launch_drop() */
    int gpu_fds[JOB_GPUS_MAX], ngpu_fds; /* likewise: the locks of its GPUs, taken, up to the first that another daemon has; */
    char busy[256];                      /* out: who has that */
    char moved[80];                      /* out: what the folder is called now that another job had left here; "": there was none */
    struct launch_end end;               /* out */
    bool unusable;                       /* out: of an error: what lies in the job's folder is the cause, and not the node */
    bool anew;                           /* out: it had ended, and was queued again: its spool went with that end */
};

/* A supervisor that was started. */
struct launched;

/* For a thread: makes the job's folder and its spec.json (from the store), opens and locks the lock, and starts detd-job, which lies beside this program,
 * with it. Nothing is started, and *ret stays NULL, where *stop says so by then. -EWOULDBLOCK: processes of the job live, err says which. -ENODATA: it had a spool that is
 * missing; `end` says how it ended, where it did. A job with a ticket is only prepared, for launcher_start(). */
int launch_start(struct store *s, struct launch_request *rq, const atomic_bool *stop, struct launched **ret, struct err *err);
/* Closes what a request that was prepared holds. */
void launch_drop(const struct launch_request *rq);
/* In place of a status: who would tell of its exit is gone or does not answer, and it may live. */
enum { LAUNCH_UNWATCHED = -1 };
/* Runs on the loop when a supervisor has left. status: SUP_EXIT_... (proto/report.h), or any other; why: in its own words, "": it said nothing; of LAUNCH_UNWATCHED why that is so. */
typedef void launch_exit(void *arg, int64_t job, int status, const char *why);
/* On the loop. Takes the supervisor in every case. An error: nobody will tell that it has left, but its lock. */
int launch_watch(uv_loop_t *loop, struct launched *l, launch_exit *on_exit, void *arg);
/* No process of the job lives: whoever holds its lock, or that of one of its GPUs, still does so in vain. gpus: UUIDs with commas. */
void launch_renew_locks(const char *jobs_dir, int64_t job, const struct gpulocks *locks, const char *gpus);
/* The session of a job with a ticket. */
void launch_note_session(const char *jobs_dir, int64_t job, long session);
/* Drops what is kept about a supervisor that runs on; for the end of the daemon. */
void launch_forget(uv_poll_t *poll);
/* true: no process of the job lives. A job without a folder never had one. */
bool launch_lock_is_free(const char *jobs_dir, int64_t job);
/* Whether a supervisor of the job ever had a spool, and so may have left reports in it. */
bool launch_has_spool(const char *jobs_dir, int64_t job);
/* Removes the spool of a job of this database that has ended so, and none of whose processes lives; where that is not so, nothing. How it ended stays in
 * its folder, for a detd that finds an older copy of the database. File work. */
void launch_drop_spool(const char *jobs_dir, const struct job_row *row, const char *store_id);
/* Writes down how, and with which report, a job ended, and that it is to be queued again: else its start would find that it has ended. File work. */
int launch_note_again(const char *jobs_dir, const struct job_row *row, struct err *err);
/* Of these, row tells by id, submitted and attempt whose the folder has to be: what another job of that number left, of this or another database, stays.
 * -EWOULDBLOCK while processes of it live. Of a job that ran as its submitter LAUNCH_ITS_USERS, and nothing goes, while something is there that is not detd's
 * to remove. File work. */
enum { LAUNCH_ITS_USERS = -20900 };
/* Removes at most `max` entries of the folder of a removed job: 1 where there are more, 0 where there is none. The folder has another name,
 * jobs/<id>.removed, before the first entry goes. */
int launch_remove_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int max, struct err *err);
/* The ticket of a job that ran as its submitter, and its lock, taken; caller closes. ret: of LAUNCH_TICKET_HEX + 1. */
int launch_held_ticket(const char *jobs_dir, int64_t job, char *ret, int *ret_lock, struct err *err);
/* Removes the logs of a job that has ended, and its checkpoints but that of step `keep`. ERR_STATE, and nothing goes, where there are others and not that. */
int launch_thin_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int64_t keep, struct err *err);
/* Removes the logs alone. */
int launch_drop_logs(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err);
/* Session of the job's processes, as its lock says; 0: not known. */
long launch_session(const char *jobs_dir, int64_t job);
/* For a thread: looks at all processes. Sends SIGKILL to the job's session, and to every other process that holds its lock. Only while the lock is held, and to those of the session only
 * after one of them was seen. Returns how many there are; `ret` names one: "process 12 (name, state D)", or is "". */
int launch_kill(const char *jobs_dir, int64_t job, char *ret, size_t size);
/* Folder of this program, without a slash at the end. */
int launch_program_dir(char *ret, size_t size, struct err *err);
