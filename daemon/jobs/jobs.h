/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/jobs.h - the jobs in memory: all that live and the newest finished ones; what users and supervisors do to them.
 *
 * Memory is ahead of the database by the writer's queue: changes are applied here at once and queued in order; whoever asked is answered
 * after the commit. Everything runs on the loop. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/job/job.h"
#include "daemon/job/life.h"
#include "daemon/store/store.h"
#include "daemon/base/turns.h"

struct err;
struct errands;
struct events;
struct report;
struct sup;
struct wish;

enum { JOBS_RECENT = 128, JOBS_MAX_LIVE = 10000 };

/* Of usage.c: where the span began that its next row is about, rows so far, and its pace. */
struct job_usage {
    const struct sup *sup; /* only compared */
    double since, cpu_seconds;
    int rows;          /* those that a daemon before has stored, too: 1000 at most */
    double pace_since; /* when its pace began to be looked at, 0: not yet; and the step that it was at */
    int64_t pace_step;
};

struct job {
    struct job_row row;
    json_t *losses; /* {"train":{TERM:value}, "val":{...}} */
    char phase[32];
    char *json; /* the object that clients see; NULL: to be built again */
    size_t json_len;
    int64_t hidden_until;    /* seq of an `end` that is not on disk yet: till then clients see the job as it was; 0: none */
    int64_t saved;           /* step of the newest checkpoint that is known of: ranks say again what they begin from */
    int64_t committed;       /* newest seq on disk; row.last_seq is the newest that came */
    int64_t rss;             /* bytes that its ranks have now, as its supervisor said last */
    const struct sup *heard; /* the one that said what they use; only compared */
    struct job_usage usage;
    struct sup *sup;     /* its supervisor's connection, NULL while there is none */
    struct life life;    /* of its processes */
    char trouble[256];   /* why it cannot start, or end, just now; "": it can */
    char told[256];      /* the trouble that an event told last, till a supervisor says hello; "": none */
    int64_t tier_from;   /* step of the last change of tier that was told; 0: none */
    int exit_status;     /* of the supervisor that left last, as of a shell */
    char says[256];      /* what keeps it from going on just now, in its supervisor's words; "": nothing */
    bool counts;         /* an attempt of the running supervisor was reported: its CPU time comes on top of row.cpu_before */
    int cpu_slots;       /* held */
    struct wish *wishes; /* of users, on their way to the disk, oldest first */
    bool unsaved;        /* the store has it otherwise: there was no memory for the row, or a refused wish stands there; one more follows */
    bool untold;         /* its row goes to the disk as ended, and the event that says so behind it */
    bool killing;        /* a thread, or detd-launch, looks for its processes */
    bool off_gpu;        /* told to leave a GPU that is quarantined */
    int64_t yields_to;   /* told to make room for that job; 0: it is not. Either: detd sends it away */
    int submissions;     /* of jobs that are to run after it, on their way to the disk */
    bool awaited;        /* by another job: jobs_trim() keeps it */
    bool reopening;      /* it had ended; that it is queued again is on the way to the disk */
    bool leaving;        /* its removal is on the way to the disk: no supervisor may speak for it any more */
};

/* What those above do about it. */
struct jobs_hooks {
    /* Tells the job's supervisor; tier NULL: the word has none. Nothing happens while none is connected: its welcome will say it. */
    void (*word)(void *arg, struct job *j, const char *word, const char *tier);
    /* A wish is durable, or was refused: who may run now is to be looked at. */
    void (*wished)(void *arg);
    /* The end of the job is on disk. Its processes may live. */
    void (*ended)(void *arg, const struct job *j);
    void *arg;
};

struct jobs {
    struct store *store;
    struct errands *errands; /* for files and processes of jobs, which take time; NULL: none is run any more */
    struct turns *turns;     /* for queries of its own; NULL: none is made any more */
    const struct events *events;
    const char *folder; /* of the job folders */
    struct jobs_hooks hooks;
    struct turns_party own;
    struct job **all; /* by id, ascending */
    size_t cap;
    int count, coming;  /* submissions on their way to the disk, which have a place */
    int64_t floor;      /* every job with an id >= floor is here */
    uint64_t rows;      /* of losses that came since the start */
    int64_t report_max; /* bytes that the reports of a job take up in the store, at most; 0: no bound */
    int leave_s;        /* in which a job that detd sends away writes its checkpoint; 0: no bound */
};

/* The newest jobs and all that live, from the store. What is above `all` is set before, and stays. */
int jobs_load(struct jobs *jobs, struct err *err);
void jobs_free(struct jobs *jobs);
/* NULL: not in memory, so either finished long ago or never there. */
struct job *jobs_find(struct jobs *jobs, int64_t id);
/* Has its row stored as it is now; where there is no memory for that, jobs_save_again() does, which is called once a second. */
void jobs_save(struct jobs *jobs, struct job *j);
void jobs_save_again(struct jobs *jobs, struct job *j);
/* The next one in order of ids, NULL after the last. */
struct job *jobs_after(struct jobs *jobs, int64_t id);
/* A job that the store has. NULL: out of memory. */
struct job *jobs_add(struct jobs *jobs, const struct job_row *row);
int jobs_live(const struct jobs *jobs);
/* The cached object, NUL-terminated. NULL: out of memory. Valid until the job changes. */
const char *job_json(struct jobs *jobs, struct job *j, size_t *ret_len);
/* The job's view is stale: it is rebuilt on demand. Of job_changed() subscribers are told as well. */
void job_drop_view(struct job *j);
void job_changed(struct jobs *jobs, struct job *j);
/* Everything up to seq is on disk. */
void job_committed(struct jobs *jobs, struct job *j, int64_t seq);
/* Forgets one that the store has no more. */
void jobs_forget(struct jobs *jobs, int64_t id);
/* Forgets the oldest finished jobs beyond JOBS_RECENT. */
void jobs_trim(struct jobs *jobs);

/* A new job, queued once it is stored; done gets its id. A token that its user sent before: rc STORE_REPEATED, the id is the one it got then. note: an event of
 * the new job, "": none. */
void jobs_submit(struct jobs *jobs, const struct job_row *row, const char *token, const char *spec, const char *note, store_done *done,
                 void *arg);
/* A job that had ended is queued again: row and spec (NULL: it stays) are the new ones, losses ({"train":..,"val":..}, copied) those to be shown where it is not
 * in memory. done gets its id when that is durable, or was refused. */
void jobs_reopen(struct jobs *jobs, const struct job_row *row, const char *spec, const json_t *losses, store_done *done, void *arg);
/* The row as it is in the store but for reports: without wishes that are still on their way to the disk, as those may be refused and taken back. Who does what cannot
 * be taken back looks there. */
const struct job_row *jobs_sure(const struct job *j);
/* What users ask. `done` runs when it is durable; rc < 0 is returned at once and nothing is done. */
int jobs_command(struct jobs *jobs, struct job *j, enum job_event event, store_done *done, void *arg, struct err *err);
int jobs_want_checkpoint(struct jobs *jobs, struct job *j, bool eval, store_done *done, void *arg, struct err *err);
int jobs_want_tier(struct jobs *jobs, struct job *j, int tier, store_done *done, void *arg, struct err *err);
int jobs_want_priority(struct jobs *jobs, struct job *j, int priority, store_done *done, void *arg, struct err *err);
/* {word, tier?, deadline?}, as a supervisor is told; new. tier NULL: it has none. */
json_t *jobs_word(const struct jobs *jobs, const struct job *j, const char *word, const char *tier);
/* Such of everything that is wanted of the job and that it has not carried out; new array. */
json_t *jobs_wishes(const struct jobs *jobs, const struct job *j);

/* Its supervisor has had it for so many seconds. Never less than was known: one that was lost may have told more than its last report says. */
void jobs_ran(struct job *j, double seconds);
/* Counts what a supervisor gives to store. False: it is more than is kept of a job, and is not to be stored; of the first such an event tells. What is vital has
 * some room more. */
bool jobs_keep(struct jobs *jobs, struct job *j, int64_t bytes, bool vital);
/* A record of the job's supervisor, in order of seq: changes the row where the record says so. True: the row is to be stored with it. */
bool jobs_report(struct jobs *jobs, struct job *j, const struct report *rep);
/* After a rewind was queued: the newest losses are older ones and are read again, once the rewind is committed. */
void jobs_reload_losses(struct jobs *jobs, struct job *j);
