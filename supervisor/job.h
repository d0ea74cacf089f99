/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/job.h - one running job: attempts one after the other until an
 * outcome is recorded.
 *
 * Every report to detd goes through the spool first (spool.h, link.h). The job collects facts from the messages of
 * ranks (messages.h), the orders of detd (orders.h), the ends of processes (outcome.h) and the progress pages
 * (watch.h). The table in going.h turns each fact into an action, and the job carries it out.
 *
 * An attempt: ranks start -> hello of all -> go -> reports -> `end` of all, and they leave -> outcome. A failed one is
 * followed by the next after a pause of 1, 2, 4 ... 30 s, unless run.restarts failures in a row came without a newer
 * checkpoint between them.
 *
 * SIGTERM and SIGINT (a node that shuts down): the ranks, which ignore them, are told to write a checkpoint and to
 * leave, and the job ends as one that was paused though nobody asked for it: detd queues it again. Whoever does not
 * obey within 60 s is killed. Likewise a job that ran for its run.time_limit, which ends as cancelled. The time that it
 * ran under supervisors before counts, as detd knows it (ran_s); pauses do not. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/host/gpulock.h"

struct err;
struct job;

struct job_options {
    const char *job_dir; /* the working directory as well */
    int64_t job;
    int attempt;
    uint64_t last_seq;
    const char *nonce;
    const char *store_id; /* of the database that numbered the job; a spool of another one is set aside. NULL: detd's welcome says it */
    const char *socket;   /* of detd */
    int lock_fd;
    bool own_folder;    /* of its submitter, not of detd: what detd would do in it is done here (given.h) */
    const char *worker; /* path of the trainer */
    char *const *gpus;  /* NULL-terminated, or NULL */
    struct gpulocks gpu_locks;
    const int *gpu_lock_fds; /* of the first ngpu_lock_fds of those GPUs, taken by detd; NULL: none were given, and they are taken here */
    int ngpu_lock_fds;
    const char *drain;  /* "cancelled", "failed": nothing is started; the job ends so, once its spool was read to the end. NULL: it runs */
    const char *reason; /* of that end, or, without drain, why the lock of a GPU was not given */
    int64_t log_max;    /* bytes of each log; 0: no bound */
    int64_t saved;      /* step of the newest checkpoint that detd has; 0: none */
    int64_t ran_s;      /* seconds that count against run.time_limit already */
};

/* From here on SIGTERM and SIGINT wait, till job_open() has read all and hears them. */
void job_hold_signals(void);

/* Opens the spool, starts connecting, reads spec.json and starts (or, where the outcome is recorded already, only
 * resends). A job that cannot be started for what its spec says gets an outcome that says why; where the system refuses
 * (a trainer that is missing while it is replaced, no memory, no descriptors) it waits, tries again and says so. Errors
 * are those of the spool.
 *
 * drain "failed" is detd's word for a spent budget. A checkpoint that detd has not heard of, in the spool or newer than
 * `saved`, proves it wrong: the job goes on. */
int job_open(uv_loop_t *loop, const struct job_options *options, struct job **ret, struct err *err);
/* Whether it has ever recorded a report. */
bool job_has_recorded(const struct job *j);
/* After the loop has ended. Returns 0, or the error that ended it early in *err. */
int job_close(struct job *j, struct err *err);
