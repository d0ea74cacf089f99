/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/jobs.h - the jobs in memory: all live ones and the newest
 * finished ones, and the changes that users and supervisors make to them.
 *
 * Memory is ahead of the database by the writer's queue: changes are applied here at once and queued in order; the
 * client is answered after the commit. Everything runs on the loop. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/job/job.h"
#include "daemon/job/life.h"
#include "daemon/store/store.h"
#include "daemon/base/user_share.h"
#include "daemon/base/turns.h"

struct err;
struct errands;
struct events;
struct report;
struct sup;
struct wish;

enum {
    JOBS_RECENT = 128,
    JOBS_FILES_BYTES = 24 << 10 /* about the size of held/ID: detd's own files of a job that has run as its submitter */
};

/* For usage.c: the begin of the time span of the next row, the number of rows so far, and the pace. */
struct job_usage {
    const struct sup *sup; /* only compared */
    double since, cpu_seconds;
    int rows;          /* those of earlier daemons included; at most 1000 */
    double pace_since; /* time from which the pace is measured, 0: not yet; and the step at that time */
    int64_t pace_step;
};

struct job {
    struct job_row row;
    json_t *losses; /* {"train":{TERM:value}, "val":{...}, "best":{...}}, the last as best.h says */
    char phase[32];
    char *json; /* the object that clients see; NULL: must be rebuilt */
    size_t json_len;
    int64_t hidden_until;    /* seq of an `end` that is not on disk yet: until then clients see the job as before; 0: no such end */
    int64_t saved;           /* step of the newest known checkpoint: ranks repeat the checkpoint that they begin from */
    int attempted;           /* highest number of a reported attempt; 0: not known */
    int64_t committed;       /* newest seq on disk; row.last_seq is the newest seq received */
    int64_t rss;             /* bytes that its ranks have now, from its supervisor's last message */
    const struct sup *heard; /* the supervisor that reported the usage; only compared */
    struct job_usage usage;
    struct sup *sup;     /* its supervisor's connection, NULL while it has no connection */
    struct life life;    /* state of its processes */
    char trouble[256];   /* why it cannot start, or end, just now; "": no trouble */
    char told[256];      /* the trouble in the last event, until a supervisor says hello; "": no event */
    int64_t tier_from;   /* step of the last reported change of tier; 0: no change */
    int exit_status;     /* of the supervisor that left last, as a shell gives it */
    char says[256];      /* why it makes no progress just now, in its supervisor's words; "": it does */
    bool rewinding;      /* rows of later steps than those of its next attempt are being removed; the attempt is stored after that */
    int64_t attempt_seq; /* seq of its newest attempt: until that is on disk, no further report is read */
    bool reloading;      /* its newest losses are being read from the store ... */
    bool reload_again;   /* ... and must be read once more */
    bool counts;         /* an attempt of the running supervisor was reported: its CPU time adds to row.cpu_before */
    bool pausable;       /* its program asks for the word pause, whatever row.fixed says */
    int cpu_slots;       /* held */
    struct wish *wishes; /* wishes of users, on their way to the disk, oldest first */
    int keeps, kept;     /* number of its wishes that a full disk kept from being stored, and how many of them are stored since */
    bool unsaved;        /* the store has another row, since memory was lacking or a refused wish is stored; the row must be saved again */
    bool untold;         /* its row is going to the disk as ended, and the event about that must follow */
    bool killing;        /* a thread, or detd-launch, is searching for its processes */
    bool off_gpu;        /* it was told to leave a quarantined GPU */
    int64_t yields_to;   /* the job that it was told to make room for; 0: no job. With this or off_gpu, detd sends the job away */
    double leave_by;     /* detd kills it then, and queues it again; 0: no such time */
    int submissions;     /* number of jobs with run.after on it that are on their way to the disk */
    bool awaited;        /* another job waits for it: jobs_trim() keeps it */
    bool reopening;      /* it had ended; its new place in the queue is on the way to the disk */
    bool leaving;        /* its removal is on the way to the disk: its supervisor is no longer accepted */
};

/* Reactions of the layer above to changes of a job. */
struct jobs_hooks {
    /* Sends a word to the job's supervisor; tier NULL: the word has no tier. Does nothing without a connection: the
     * welcome will repeat the word. */
    void (*word)(void *arg, struct job *j, const char *word, const char *tier);
    /* A wish is durable, or was refused: the scheduler must run. */
    void (*wished)(void *arg);
    /* The end of the job is on disk. Its processes may still live. */
    void (*ended)(void *arg, const struct job *j);
    void *arg;
};

struct jobs {
    struct store *store;
    struct errands *errands; /* for slow work on files and processes of jobs; NULL: no such work is begun any more */
    struct turns *turns;     /* for its own queries; NULL: no query is begun any more */
    const struct events *events;
    const char *folder; /* of the job folders */
    struct jobs_hooks hooks;
    struct turns_party own;
    struct job **all; /* by id, ascending */
    size_t cap;
    int count, coming; /* coming: submissions on their way to the disk, with a reserved place */
    struct user_shares shares;
    int64_t floor;      /* every job with an id >= floor is in memory */
    uint64_t rows;      /* number of loss rows since the start */
    int64_t report_max; /* maximum number of bytes of a job's reports in the store; 0: no bound */
    int64_t stored_max; /* share of a user of the database, in bytes; 0: that of the table of bounds */
    int leave_s;        /* seconds in which a job that detd sends away must write its checkpoint; 0: no bound */
};

/* Loads all live jobs and the newest others from the store. The caller must set the members above `all` before; they
 * stay. */
int jobs_load(struct jobs *jobs, struct err *err);
void jobs_free(struct jobs *jobs);
/* NULL: not in memory: it finished long ago, or never existed. */
struct job *jobs_find(struct jobs *jobs, int64_t id);
/* Stores the job's row as it is now. If memory is lacking, jobs_save_again() repeats it; it is called once a second. */
void jobs_save(struct jobs *jobs, struct job *j);
void jobs_save_again(struct jobs *jobs, struct job *j);
/* The next job in order of ids; NULL after the last. */
struct job *jobs_after(struct jobs *jobs, int64_t id);
/* Adds a job that is in the store. NULL: out of memory. */
struct job *jobs_add(struct jobs *jobs, const struct job_row *row);
int jobs_live(const struct jobs *jobs);
/* The cached object, NUL-terminated. NULL: out of memory. Valid until the job changes. */
const char *job_json(struct jobs *jobs, struct job *j, size_t *ret_len);
/* Marks the job's cached object as stale; it is rebuilt on demand. job_changed() also tells the subscribers. */
void job_drop_view(struct job *j);
void job_changed(struct jobs *jobs, struct job *j);
/* Everything up to seq is on disk. */
void job_committed(struct jobs *jobs, struct job *j, int64_t seq);
/* Forgets a job that is no longer in the store. */
void jobs_forget(struct jobs *jobs, int64_t id);
/* Forgets the oldest finished jobs beyond JOBS_RECENT. */
void jobs_trim(struct jobs *jobs);

/* Submits a new job. It is queued once it is stored; done gets its id. If its user sent the token before: rc
 * STORE_REPEATED and the earlier id. note: an event of the new job, "": no event. */
void jobs_submit(struct jobs *jobs, const struct job_row *row, const char *token, const char *spec, const char *note, store_done *done,
                 void *arg);
/* Queues a job again that had ended, with the new row and spec (NULL: it stays). losses ({"train":..,"val":..},
 * copied): the losses to show, if the job is not in memory. done gets its id when that is durable, or was refused. */
void jobs_reopen(struct jobs *jobs, const struct job_row *row, const char *spec, const json_t *losses, store_done *done, void *arg);
/* The row as it is in the store, apart from reports. It leaves out wishes that are still on their way to the disk,
 * since they may be refused and undone. Actions that cannot be undone must use this row. */
const struct job_row *jobs_sure(const struct job *j);
/* Whether a wish of its users was carried out that is not on the disk yet. */
bool jobs_keeps(const struct job *j);
/* Wishes of users. `done` runs when the wish is durable. A returned rc < 0 means that the wish is impossible and
 * nothing changes. While the disk is full, a cancel or pause is carried out and is stored when there is room; the rc of
 * `done` says so. JOBS_NOTED: even if detd is killed before that. JOBS_REMEMBERED: unless detd ends before that. */
enum { JOBS_NOTED = STORE_REWOUND + 1, JOBS_REMEMBERED };
int jobs_command(struct jobs *jobs, struct job *j, enum job_event event, store_done *done, void *arg, struct err *err);
int jobs_want_checkpoint(struct jobs *jobs, struct job *j, bool eval, store_done *done, void *arg, struct err *err);
int jobs_want_tier(struct jobs *jobs, struct job *j, int tier, store_done *done, void *arg, struct err *err);
int jobs_want_priority(struct jobs *jobs, struct job *j, int priority, store_done *done, void *arg, struct err *err);
/* {word, tier?, deadline?}, as sent to a supervisor; new reference. tier NULL: the word has no tier. */
json_t *jobs_word(const struct jobs *jobs, const struct job *j, const char *word, const char *tier);
/* An array of these words, for all wishes that the job has not carried out yet; new reference. */
json_t *jobs_wishes(const struct jobs *jobs, const struct job *j);
/* Tells the job to write a checkpoint and leave, after yields_to or off_gpu was set. Sets leave_by: detd does not rely
 * on its supervisor. */
void jobs_send_away(struct jobs *jobs, struct job *j);

/* Notes that its supervisor has had the job for so many seconds. The value never falls: a lost supervisor may have told
 * more than its last report says. */
void jobs_ran(struct job *j, double seconds);

/* Notes the CPU time of all ranks since its supervisor started, in seconds. Ignores a value that is not above 0, and
 * one whose sum is not finite: the store would refuse the row. */
void jobs_computed(struct job *j, double cpu_seconds);
/* Bytes that a job with so many reported bytes takes of its user's share: those in the store, and JOBS_FILES_BYTES. */
int64_t jobs_stored(const struct jobs *jobs, int64_t reported);
/* Counts bytes of a supervisor's report. False: the job's limit is reached, and the report must not be stored; an event
 * tells of the first such report. Vital reports have some extra room. */
bool jobs_keep(struct jobs *jobs, struct job *j, int64_t bytes, bool vital);
/* A record of the job's supervisor, in order of seq: changes the row if the record says so. True: the row must be
 * stored with the record. */
bool jobs_report(struct jobs *jobs, struct job *j, const struct report *rep);
/* To be called after a rewind was committed. The newest losses are then older ones, and are read again. */
void jobs_reload_losses(struct jobs *jobs, struct job *j);
