/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store.h - the database <state>/detd.db. All SQL of detd is in
 * store*.c.
 *
 * One writer thread owns the writing connection. The loop queues changes. The writer commits them in batches with
 * synchronous=FULL: up to 2,000 rows or 250 ms of losses; a change that a caller waits for goes at once. They are
 * written and answered in the order in which they were queued, with one exception: a new job and its number go before
 * waiting reports, events and usage that change no job's state. On a full disk or a locked database the writer waits:
 * the batch is tried again, and nothing is dropped. Only the requests of users are refused at once while the disk is
 * full (-ENOSPC). Queries run on reading connections, on any other thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/job/job.h"

struct err;
struct report;
struct store;
struct text;

/* PIECE_ROWS: rows that a piece of a removal or a rewind counts in store_backlog(). */
enum { STORE_BATCH_ROWS = 2000, STORE_BATCH_MS = 250, STORE_PAGE_BYTES = 768 << 10, STORE_PIECE_ROWS = 1000 };

/* Opens or creates the database in `folder`, brings it to the newest schema and starts the writer. Caller closes.
 * Refuses damaged files, newer schemas and other programs' databases, with a sentence that names the remedy; a refused
 * file is not changed. The store alone does not keep the loop alive. */
int store_open(const char *folder, uv_loop_t *loop, struct store **ret, struct err *err);
/* Commits all queued changes, stops the writer, frees. Gives the remaining answers before it returns. NULL is
 * allowed. */
void store_close(struct store *s);
const char *store_id(const struct store *s);
const char *store_library(void); /* the version of SQLite */

/* For the loop only. `done` (may be NULL) runs on the loop after the commit. rc: 0, or why this change was refused. */
typedef void store_done(void *arg, int rc, int64_t value, const struct err *err);
/* Results of store_submit() and store_label(). store_submit() stores a new job; value = its id, which is row->id if
 * that is not 0. STORE_REPEATED: this user sent the token before; value = the earlier id, and nothing is stored.
 * STORE_CLEAR: the job of row.after has ended in the required way, and the new job does not wait for it. */
enum { STORE_REPEATED = 1, STORE_CLEAR, STORE_CHANGED };
/* Takes a number for a new job, to be its row->id; value = the number. If the token turns out to be repeated, the
 * number stays unused. */
void store_take_id(struct store *s, store_done *done, void *arg);
/* No later job gets a number up to `highest`, or one of which the database holds anything. */
void store_skip_ids(struct store *s, int64_t highest);
/* From now on a user other than an admin has at most so many jobs that wait or are paused (0: no limit); a further one
 * is refused with ERR_STATE. */
void store_limit_queued(struct store *s, int most);
void store_submit(struct store *s, const struct job_row *row, const char *token, const char *spec, store_done *done, void *arg);
/* Queues a completed or failed job again: stores its row, with row->steps and row->ticket, and its spec (NULL: the spec
 * stays). ERR_STATE: it is no longer in such a state, or its user may not have one more waiting job. */
void store_reopen(struct store *s, const struct job_row *row, const char *spec, store_done *done, void *arg);
/* Changes note and tags of a job to those of `after`, if they still are those of `before`; otherwise rc
 * STORE_CHANGED. */
void store_label(struct store *s, const struct job_row *before, const struct job_row *after, store_done *done, void *arg);
/* -ENOMEM: done was called, and nothing is stored. */
int store_save(struct store *s, const struct job_row *row, store_done *done, void *arg);
/* The same for a user's request: it may be refused. */
void store_wish(struct store *s, const struct job_row *row, store_done *done, void *arg);
/* Allocates the memory of the next store_report(), so that it cannot fail: the jobs in memory must not get ahead of the
 * stored reports. 0 or -ENOMEM. */
int store_reserve(struct store *s, struct err *err);
/* Stores a record of a supervisor with the job's row after it (NULL: only last_seq and step change), in one
 * transaction. Takes rep. */
void store_report(struct store *s, struct report *rep, const struct job_row *row, store_done *done, void *arg);
/* Removes some of the rows of later steps than `step`, which a new attempt reports again, before its record is stored.
 * `at`: where it goes on, all zero in the beginning. The caller keeps the struct until `done`, then moves `next` to
 * `at`, and calls again until next.table is STORE_REWOUND. */
enum { STORE_REWOUND = 3 };
struct store_rewind {
    int64_t job, step;
    struct store_rewind_place {
        int table;
        char key[2][64]; /* of the last curve, or score, that is done */
        int64_t key_step, removed;
    } at, next;
};
void store_rewind(struct store *s, struct store_rewind *r, store_done *done, void *arg);
void store_event(struct store *s, int64_t job, const char *level, const char *kind, const char *text, double now);
void store_setting(struct store *s, const char *key, const char *value, store_done *done, void *arg);
/* The same; a full disk does not refuse it: it waits for room. */
void store_setting_later(struct store *s, const char *key, const char *value, store_done *done, void *arg);
/* The known facts about a GPU: its row is made or updated. quarantine "": healthy. */
struct store_gpu {
    char uuid[JOB_UUID_MAX + 1], name[128], quarantine[240];
    int64_t memory_bytes, ecc_errors;
    double quarantined; /* since when; 0: not quarantined */
};
void store_gpu(struct store *s, const struct store_gpu *gpu, double now, store_done *done, void *arg);
/* The resources that a job used since the row before. gpu and gpu_memory below 0: not known. */
struct store_usage {
    int64_t job, time; /* Unix seconds */
    double cpu;        /* cores */
    int64_t memory;    /* bytes */
    double gpu;        /* percent */
    int64_t gpu_memory;
};
void store_usage(struct store *s, const struct store_usage *u);
/* Slots granted to a user within an hour of those for which detd has run. They are added to earlier ones. */
struct store_grant {
    int64_t hour;
    uint32_t uid;
    bool cuda; /* GPUs; false: slots of the CPU */
    char user[JOB_USER_MAX + 1];
    double slot_s;
};
void store_grant(struct store *s, const struct store_grant *g);
/* Removes a job that has ended: its row, for good, with an event of the node with the text `text`. Afterwards the job
 * is pending until store_sweep() has finished. */
void store_remove(struct store *s, int64_t job, const char *text, double now, store_done *done, void *arg);
/* Removes some of the other rows of a removed job. value 1: there are more; 0: there are no more, and the job is no
 * longer pending. */
void store_sweep(struct store *s, int64_t job, double now, store_done *done, void *arg);
/* Removes usage rows, and all points but the last of the curves of a job, some at a time; at the end marks that. value
 * 1: there are more. ERR_STATE, and nothing is removed: the job has not ended, or it is live again. */
void store_thin_points(struct store *s, int64_t job, store_done *done, void *arg);
/* Marks that its logs are gone; ERR_STATE for the same reasons. */
void store_clear_logs(struct store *s, int64_t job, store_done *done, void *arg);
/* Notes how many seconds detd has run on this database. Ages are counted by this number. */
void store_running(struct store *s, double seconds);
/* Removes some of the events that were stored before detd had run so long, in whole days. value 1: there may be
 * more. */
void store_forget_events(struct store *s, double running, store_done *done, void *arg);
/* Gives memory back and shortens the WAL; for idle times. */
void store_shrink(struct store *s);
/* Called on the loop after the answers of a batch were given. */
void store_on_batch(struct store *s, void (*fn)(void *arg), void *arg);
/* From now on queries break off with ERR_STATE. For the end, before waiting for the threads that run them. NULL is
 * allowed. */
void store_stop_reading(struct store *s);
/* Number of rows queued and not committed. Above BOUND_QUEUED_ROWS supervisors are no longer read. */
int store_backlog(struct store *s);
/* Copies the error that the writer is waiting out into `ret`; "" if there is no error. */
void store_trouble(struct store *s, char *ret, size_t size);

/* Queries: any thread; they append JSON to `out`. Each takes at most a few milliseconds by index, and a page ends at
 * STORE_PAGE_BYTES. */
struct store_page {
    int64_t limit;  /* rows of the page */
    int64_t cursor; /* only ids below it; 0: from the newest */
};
struct store_loss_query {
    int64_t job, from, to, limit, points; /* points 0: every row */
    const char *split, *term, *cursor;    /* NULL: all, all, from the start */
};
/* Rows of all live jobs, and the newest `recent` others, newest first. The callback must copy the row. */
int store_load_jobs(struct store *s, int recent, void (*each)(void *arg, const struct job_row *row), void *arg, struct err *err);
/* Jobs, newest first, with their newest losses as JSON text. */
typedef void store_job_fn(void *arg, const struct job_row *row, const char *losses);
/* A filter of jobs; members with their neutral value accept all jobs. name is a pattern in the syntax of sqlite's
 * GLOB. */
struct store_job_filter {
    int state;   /* -1: any */
    int64_t uid; /* -1: any */
    char user[JOB_USER_MAX + 1], name[4 * JOB_NAME_MAX + 1];
    double since; /* submitted then or later */
    char tag[JOB_TAG_MAX + 1];
};
bool store_filter_takes(const struct store_job_filter *f, const struct job_row *row);
int store_list_jobs(struct store *s, const struct store_page *page, const struct store_job_filter *f, store_job_fn *each, void *arg,
                    struct err *err);
int store_get_job(struct store *s, int64_t id, struct job_row *ret, struct err *err); /* ERR_NOTFOUND */
/* The first pending job with a larger id: only id (0: no such job), submitted and attempt are set. */
int store_next_removed(struct store *s, int64_t after, struct job_row *ret, struct err *err);
int store_get_spec(struct store *s, int64_t id, char **ret, struct err *err); /* caller frees */
/* {"train":{TERM:value}, "val":{...}} */
int store_losses(struct store *s, int64_t id, struct text *out, struct err *err);
/* Jobs that ended before a time, or before detd had run so many seconds, by id: at most `limit` with larger ids than
 * `after`, of a user by number (-1: all) and by name ("": all). */
enum { STORE_CLEARED_POINTS = 1, STORE_CLEARED_LOGS = 2 };
struct store_ended_query {
    int64_t after, limit, uid;
    double before, running; /* running 0: `before` counts */
    int not_cleared;        /* STORE_CLEARED_...: only jobs that still have these; 0: all */
    char user[JOB_USER_MAX + 1];
};
int store_ended_jobs(struct store *s, const struct store_ended_query *q, void (*each)(void *arg, const struct job_row *row), void *arg,
                     struct err *err);
/* *ret_step: the best checkpoint, or the newest if there is no best one; 0: no checkpoint. */
int store_best_checkpoint(struct store *s, int64_t id, int64_t *ret_step, struct err *err);
/* Steps of its checkpoints, newest first, until `each` returns false. */
typedef bool store_checkpoint_fn(void *arg, int64_t step);
int store_each_checkpoint(struct store *s, int64_t id, store_checkpoint_fn *each, void *arg, struct err *err);
int store_newest_checkpoint(struct store *s, int64_t id, int64_t *ret_step, struct err *err); /* 0: no checkpoint */
int store_newest_attempt(struct store *s, int64_t id, int64_t *ret, struct err *err);         /* 0: no attempt */
/* "attempts":[...],"checkpoints":[...],"tiers":[...],"init":"..." (or null) without braces around. folder: of the job;
 * NULL: a program, whose checkpoints lie where it says.
 * there: tells whether a checkpoint is on the disk. */
int store_job_details(struct store *s, int64_t id, const char *folder, store_checkpoint_fn *there, void *arg, struct text *out,
                      struct err *err);
int store_loss_rows(struct store *s, const struct store_loss_query *q, struct text *out, struct err *err); /* {"rows":[...],"cursor":...} */
/* Results of validations or, if `dataset` is given, of evaluations on that set; metric NULL: all. ERR_INPUT, field
 * metric or set: the job has others, but not this one; err lists them. */
struct store_eval_query {
    int64_t job, limit;
    const char *dataset, *metric, *cursor;
};
int store_eval_rows(struct store *s, const struct store_eval_query *q, struct text *out, struct err *err);
int store_events(struct store *s, int64_t id, const struct store_page *page, struct text *out, struct err *err); /* id 0: all */
int store_usage_rows(struct store *s, int64_t id, const struct store_page *page, struct text *out,
                     struct err *err);                                             /* {"rows":[...],"cursor":...} */
int store_usage_count(struct store *s, int64_t id, int64_t *ret, struct err *err); /* at most 1000 */
/* Slot time granted from the hour `from` on: each row; or sums of users, {"rows":[...]}, those with most first. */
int store_load_grants(struct store *s, int64_t from, void (*each)(void *arg, const struct store_grant *g), void *arg, struct err *err);
int store_user_usage(struct store *s, int64_t from, struct text *out, struct err *err);
int store_tiers(struct store *s, int64_t id, struct text *out, struct err *err); /* [{"step":..,"tier":..}] */
int store_load_gpus(struct store *s, void (*each)(void *arg, const struct store_gpu *gpu), void *arg, struct err *err);
/* About the bytes of each user's jobs, at most job_max of each job (0: all), and `more` for each job. */
int store_each_user(struct store *s, int64_t job_max, int64_t more, void (*each)(void *arg, uint32_t uid, int64_t bytes), void *arg,
                    struct err *err);
int store_get_setting(struct store *s, const char *key, char *ret, size_t size, struct err *err); /* "" if it is not set */
