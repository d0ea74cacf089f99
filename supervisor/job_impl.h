/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/job_impl.h - what the files of job.h share. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "proto/line.h"
#include "supervisor/job.h"
#include "supervisor/link.h"
#include "supervisor/logs.h"
#include "supervisor/outcome.h"
#include "supervisor/ranks.h"
#include "supervisor/spool.h"
#include "supervisor/tiers.h"
#include "supervisor/watch.h"

/* How far this supervisor is with the job. */
enum run_state {
    RUN_BACKOFF,  /* no ranks; the timer starts the next attempt */
    RUN_HELLO,    /* ranks started, not all said hello */
    RUN_GOING,    /* after go */
    RUN_STOPPING, /* ranks are on their way out; the timer kills them */
    RUN_ENDED     /* `end` is recorded; detd has until the timer to ack it */
};

/* Commands that wait until rank 0 can take them. */
enum job_pending { PENDING_CHECKPOINT = 1, PENDING_EVAL = 2, PENDING_TIER = 4, PENDING_PAUSE = 8, PENDING_CANCEL = 16 };

struct job_rank {
    bool hello, closed, gone;
    struct outcome_rank out;
};

enum { JOB_MISSING_TRIES = 4 }; /* attempts in a row that a missing file may end before the job gives its slots back */
enum { JOB_RATE_LOOKS = 10 };   /* seconds over which images/s are averaged */
struct job_rate {
    uint64_t images[JOB_RATE_LOOKS];
    double time_s[JOB_RATE_LOOKS];
    int looks;
};

struct job {
    struct job_options options;
    uv_loop_t *loop;
    struct jobspec *spec;
    int nranks;
    char **env;
    int worker_fd, plugin_fd;
    int *gpu_locks, ngpu_locks; /* descriptors, held for life */
    struct spool *spool;
    struct link *link;
    struct tiers *tiers;
    struct logs logs;
    struct err fatal; /* code 0: none */

    enum run_state state;
    int attempt, failures; /* failures in a row without a newer checkpoint */
    int64_t saved;         /* step of the newest checkpoint that is known of */
    bool lost;             /* the detd-job before this one was, in mid-attempt */
    bool unheard;          /* a checkpoint is in the spool that detd has not stored */
    int missing;           /* attempts that ended for a file that is away, since the newest checkpoint */
    int refusals;          /* times in a row that the system refused what a start needs */
    char refusal[512];     /* the last one */
    bool started;          /* rank 0 said `start` in this attempt */
    bool told;             /* rank 0 said it in some attempt of this process */
    bool hung;             /* this attempt ended by a hang verdict */
    bool leaving;          /* SIGTERM came */
    bool overtime;         /* it ran for run.time_limit */
    uint64_t began_ms;     /* uv_now() when this process took the job */
    bool want_pause, want_cancel;
    unsigned pending;
    char want_tier[16];
    char cause[OUTCOME_TEXT]; /* why we stopped the ranks ourselves */
    int order;
    int left_looks;    /* at processes that the ranks of this attempt left behind */
    int stay_looks;    /* at ranks that were killed */
    struct late *late; /* records that wait for room on the disk, oldest first */
    size_t late_bytes;
    char no_room[200];       /* what those find, for the status; "": there are none */
    char waits[256];         /* what rank 0 waits for, likewise */
    struct durable *durable; /* an answer to rank 0 that waits for them */
    char trouble[256];       /* what keeps the job from going on, for the status; "": nothing */
    uint64_t end_seq;
    char outcome[OUTCOME_WORD], reason[OUTCOME_TEXT]; /* of the end */
    bool final;                                       /* that end: the job will not go on */
    struct ranks *ranks;
    struct watch *watch;
    struct job_rank rank[JOB_MAX_RANKS];
    char nccl_id[1024], device[64];
    struct ranks_usage usage; /* of the attempts before */
    struct job_rate rate;
    char status[16 << 10]; /* last status line sent */
    int quiet;             /* lines since that were the same */

    int syncs; /* uv_work of publish and tier_ok under way */
    int handles;
    uv_timer_t state_timer, command_timer, tick;
    uv_signal_t sigchld, sigterm, sigint;
    char hello[512];
    char record[SPOOL_MAX_RECORD]; /* being built */
};

/* job.c */
double job_time(void); /* Unix seconds */
void job_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The spool cannot be written, or the like: nothing can be promised any more, so the ranks are killed and the program leaves. */
void job_fatal(struct job *j, const struct err *err);
/* records.c */
/* A record begun with line_begin() on j->record: ends it, appends it, and sends it when it can. *ret_seq, of the job or NULL, is set once it is written. */
void job_append(struct job *j, struct line *l, uint64_t *ret_seq);
void job_append_text(struct job *j, const char *text, size_t len);
void job_event(struct job *j, int rank, const char *level, const char *kind, const char *text);
/* tier NULL: it refuses none. */
void job_event_of_tier(struct job *j, int rank, const char *level, const char *kind, const char *text, const char *tier);
/* Tries those again that wait for room; when all are written, what waits for them goes on. */
void job_write_late(struct job *j);
void job_drop_late(struct job *j);

/* A checkpoint of that step is there: failures count anew where it is newer than all before. */
void job_saved(struct job *j, int64_t step);
/* Kills the ranks after grace_ms; 0: at once. cause "": their own words count. */
void job_stop_ranks(struct job *j, unsigned grace_ms, const char *cause);
void job_end_written(struct job *j);
void job_end(struct job *j, const char *outcome, const char *reason, const char *class);
/* The end of a job that is not to go on for now, as was wished. One that only was told to leave is queued again by detd. */
void job_end_stopped(struct job *j, const char *reason);
void job_to_rank(struct job *j, int rank, struct line *l); /* `l` is begun on j->record */

/* The first thing of an opened job: an attempt, or only the wait for an ack, or the end. lost: the attempt that no record ended, 0: none. */
void job_begin(struct job *j, int lost);

/* on_end.c */
/* Runs the command of run.on_end, where there is one, with a line about "end", "failure" or "hang". Nothing waits for it. */
void job_tell_command(struct job *j, const char *event, const char *outcome, const char *reason);

/* open.c */
/* What the ranks need: spec, environment, trainer, plugin, tiers; may be called again after a failure. */
int job_read(struct job *j, struct err *err);

/* messages.c: a line of a rank */
void job_take_line(void *arg, int rank, const char *text, size_t len);
/* What was reported before is written: an answer that waits till it is durable may begin to. */
void job_answer_late(struct job *j);

/* gpus.c: the locks of the granted GPUs, and the check that a rank uses the one it was given */
/* All or none. -EWOULDBLOCK: a job of another daemon has one of them. */
int job_lock_gpus(struct job *j, struct err *err);
void job_unlock_gpus(struct job *j);
/* A rank that says in its hello that it sees another GPU, or several, ends the attempt. */
void job_check_gpu(struct job *j, int rank, const json_t *hello);

/* control.c: commands of detd and of signals */
void job_take_control(struct job *j, const json_t *msg);
void job_leave(struct job *j);           /* SIGTERM */
void job_look_at_limit(struct job *j);   /* once a second: run.time_limit */
double job_seconds(const struct job *j); /* since this process took the job */
/* Gives rank 0 what waits for it. */
void job_send_pending(struct job *j);

/* status.c */
void job_tick(struct job *j); /* once a second: watch, status */
void job_send_status(struct job *j);
void job_usage(const struct job *j, struct ranks_usage *ret);
