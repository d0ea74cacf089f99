/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/job/job.h - a job's stored row and its state machine. Pure: no I/O, the time is an argument. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/launch.h"

struct err;

/* name, live = it may have processes, done = nothing will happen to it any more */
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

/* What happens to a job. The first three, and the last, come from users, the rest from the scheduler and the supervisor. */
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

/* A job trains a model, verifies another run or evaluates a checkpoint of one. */
enum job_kind { JOB_TRAINS, JOB_VERIFIES, JOB_EVALUATES, JOB_KINDS };
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
    JOB_TAGS = 16,
    JOB_TAG_MAX = 32,
    JOB_TAGS_BYTES = JOB_TAGS * (JOB_TAG_MAX + 1)
};

/* The columns of table jobs but spec and token; a plain value, so that it can be copied to the writer thread. Times are 0 where there is none yet. */
/* How the reason of a job begins whose reports are lost: what is left of its spool is kept. */
#define JOB_SPOOL_LOST "spool lost"
/* Likewise, of a job that ended before all reports of its spool were read: the spool is kept. */
#define JOB_SPOOL_UNREAD "spool unread"

struct job_row {
    int64_t id;
    char name[4 * JOB_NAME_MAX + 1]; /* the limit counts characters */
    char user[JOB_USER_MAX + 1];
    uint32_t uid;
    enum job_kind kind;
    enum job_state state;
    char reason[JOB_REASON_MAX + 1];
    enum job_want want;
    int want_tier; /* -1: none */
    bool want_checkpoint, want_eval;
    int tier;
    bool cuda;
    int ranks, ranks_per_gpu, threads;
    int priority, restarts, deaths, attempt;
    int64_t after; /* job that has to end first; 0: none */
    bool after_ok; /* it has to complete */
    bool backfill; /* it has slots for which a job before it waits, and makes room when these are all that it waits for */
    char nonce[JOB_NONCE_LEN + 1];
    char gpus[JOB_GPUS_MAX * (JOB_UUID_MAX + 1)]; /* UUIDs with commas; "": none */
    int64_t last_seq, step, steps;                /* steps 0: it trains none, it evaluates */
    int64_t reported;                             /* bytes that its reports take up in the store, about; of those that were not kept, too */
    double images_per_s, cpu_seconds, cpu_before; /* of all ranks; of supervisors before the running one */
    double seconds, seconds_before;               /* that it ran, with its slots; of supervisors before the running one */
    double limited;                               /* of those, what counts against run.time_limit */
    int64_t max_rss;
    double submitted, started, ended;
    char note[JOB_NOTE_MAX + 1], tags[JOB_TAGS_BYTES]; /* what people say of it: label.h; written by store_label() alone */
    char ticket[LAUNCH_TICKET_HEX + 1];                /* of detd-launch, which runs the job as its submitter; "": it runs as detd's user */
};

/* Carries the event out on the row: state, want, reason, times; of a job that had ended and is queued again, deaths and backfill too. Refused events return ERR_STATE with a sentence for the user and change nothing.
 * Asking for what already holds is no error. `reason` may be NULL where nobody gave one. A user's wish leaves the reason of a job that has unread reports. */
int job_apply(struct job_row *row, enum job_event event, const char *reason, double now, struct err *err);

/* Reports of it are in a spool that was not read to its end. */
bool job_has_unread(const struct job_row *row);
bool job_is_live(enum job_state s); /* starting, running or stopping */
bool job_is_done(enum job_state s); /* completed, failed or cancelled */
const char *job_state_name(enum job_state s);
int job_state_parse(const char *name); /* -1: no such state */
const char *job_kind_name(enum job_kind kind);
enum job_kind job_kind_parse(const char *name); /* unknown: it trains */
const char *job_want_name(enum job_want w);
enum job_want job_want_parse(const char *name); /* unknown: run */
