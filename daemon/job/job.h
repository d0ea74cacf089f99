/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/job.h - a job's stored row and its state machine. Pure: no I/O,
 * the time is an argument. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/launch.h"

struct err;

/* name, live = it may have processes, done = it has ended for good */
#define JOB_STATES(X)               \
    X(QUEUED, "queued", 0, 0)       \
    X(STARTING, "starting", 1, 0)   \
    X(RUNNING, "running", 1, 0)     \
    X(STOPPING, "stopping", 1, 0)   \
    X(PAUSED, "paused", 0, 0)       \
    X(COMPLETED, "completed", 0, 1) \
    X(FAILED, "failed", 0, 1)       \
    X(CANCELLED, "cancelled", 0, 1)
#define X(ident, name, live, done) JOB_##ident,
enum job_state { JOB_STATES(X) JOB_STATE_COUNT };
#undef X

/* The events of a job. The first three, and the last, come from users, the others from the scheduler and the
 * supervisor. */
#define JOB_EVENTS(X)                       \
    X(PAUSE, "pause")                       \
    X(RESUME, "resume")                     \
    X(CANCEL, "cancel")                     \
    X(GRANT, "grant of slots")              \
    X(ATTEMPT, "start of training")         \
    X(RETRY, "start of another supervisor") \
    X(END_COMPLETED, "end")                 \
    X(END_FAILED, "failure")                \
    X(END_CANCELLED, "end after cancel")    \
    X(END_PAUSED, "end after pause")        \
    X(EXTEND, "another number of steps")
#define X(ident, name) JOB_EV_##ident,
enum job_event { JOB_EVENTS(X) JOB_EVENT_COUNT };
#undef X

/* A job trains a model, verifies another run, evaluates a checkpoint of one, or runs a program. */
enum job_kind { JOB_TRAINS, JOB_VERIFIES, JOB_EVALUATES, JOB_RUNS, JOB_KINDS };
enum job_want { JOB_WANT_RUN, JOB_WANT_PAUSE, JOB_WANT_CANCEL };
enum {
    JOB_NAME_MAX = 64,
    JOB_USER_MAX = 32,
    JOB_REASON_MAX = 511,
    JOB_NONCE_LEN = 32,
    JOB_GPUS_MAX = 16,
    JOB_UUID_MAX = 47,
    JOB_PRIORITY_MAX = 1000, /* and its negative; run.priority */
    JOB_NOTE_MAX = 400,
    JOB_ATTEMPT_MAX = 1000000,
    JOB_TAGS = 16,
    JOB_TAG_MAX = 32,
    JOB_TAGS_BYTES = JOB_TAGS * (JOB_TAG_MAX + 1)
};

/* The first words of a job's reason when its reports are lost: the remains of its spool are kept. */
#define JOB_SPOOL_LOST "spool lost"
/* The same, for a job that ended before all reports of its spool were read: the spool is kept. */
#define JOB_SPOOL_UNREAD "spool unread"

/* The columns of table jobs except spec and token. A plain value, so that it can be copied to the writer thread. Times
 * are 0 until they are known. */
struct job_row {
    int64_t id;
    char name[4 * JOB_NAME_MAX + 1]; /* the limit counts characters */
    char user[JOB_USER_MAX + 1];
    uint32_t uid;
    bool admin; /* its submitter was one: limits of users do not hold for it */
    enum job_kind kind;
    enum job_state state;
    char reason[JOB_REASON_MAX + 1];
    enum job_want want;
    int want_tier; /* -1: no change */
    bool want_checkpoint, want_eval;
    int tier;
    bool cuda;
    int ranks, ranks_per_gpu, threads;
    int gpus_asked; /* by a program, in all; 0: the ranks decide */
    bool fixed;     /* a program that cannot be paused */
    int priority, restarts, deaths, attempt;
    int64_t after; /* job that must end first; 0: no such job */
    bool after_ok; /* that job must complete */
    bool backfill; /* it has slots that a job ahead of it waits for, and makes room once these suffice for that job */
    char nonce[JOB_NONCE_LEN + 1];
    char gpus[JOB_GPUS_MAX * (JOB_UUID_MAX + 1)]; /* UUIDs with commas; "": no GPU */
    int64_t last_seq, step, steps;                /* steps 0: it evaluates, or a program has not said */
    int64_t reported;                             /* approximate bytes of its reports in the store, dropped reports included */
    double images_per_s, cpu_seconds, cpu_before; /* cpu_seconds: of all ranks; cpu_before: of supervisors before the running one */
    double seconds, seconds_before;               /* time that it ran, with its slots; seconds_before: before the running supervisor */
    double limited;                               /* the part of these seconds that counts against run.time_limit */
    double held, time_limit; /* held: the same by detd's own clock, while detd ran; time_limit: run.time_limit, 0: none */
    int64_t max_rss;
    double submitted, started, ended;
    char note[JOB_NOTE_MAX + 1], tags[JOB_TAGS_BYTES]; /* labels by users: label.h; only store_label() writes them */
    char ticket[LAUNCH_TICKET_HEX + 1];                /* of detd-launch, which runs the job as its submitter; "": it runs as detd's user */
};

/* Applies the event to the row: state, want, reason, times; for a job that had ended and is queued again, also deaths
 * and backfill. Returns ERR_STATE, with a sentence for the user, for a refused event, and then changes nothing. Asking
 * for the present state is no error. `reason` may be NULL. A user's wish keeps the reason of a job with unread
 * reports. */
int job_apply(struct job_row *row, enum job_event event, const char *reason, double now, struct err *err);

/* Whether its reports are in a spool that was not read to its end. */
bool job_has_unread(const struct job_row *row);
bool job_is_live(enum job_state s); /* starting, running or stopping */
bool job_is_done(enum job_state s); /* completed, failed or cancelled */
const char *job_state_name(enum job_state s);
int job_state_parse(const char *name); /* -1: no such state */
const char *job_kind_name(enum job_kind kind);
enum job_kind job_kind_parse(const char *name); /* unknown: it trains */
const char *job_want_name(enum job_want w);
enum job_want job_want_parse(const char *name); /* unknown: run */
