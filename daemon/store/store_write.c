/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_write.c - the writer's statements: how a batch of
 * changes becomes one transaction. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "proto/grow.h"
#include "proto/host/room.h"
#include "proto/tier.h"

/* ---- statements ---- */

static void bind_time(sqlite3_stmt *st, int at, double t)
{
    bind_real(st, at, t == 0 ? NAN : t);
}

/* ---- jobs ---- */

/* Checked here, in the order of submissions: so two of them can never both take the last free place. */
static int refuse_queued(struct writer *w, struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_QUEUED];
    int rc;

    if (op->number[0] == 0 || op->row->admin)
        return SQLITE_OK;
    sqlite3_bind_int64(st, 1, op->row->uid);
    sqlite3_bind_int64(st, 2, op->number[0]);
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW && sqlite3_column_int64(st, 0) >= op->number[0])
        op->rc = err_set(&op->err, ERR_STATE, "%s has %lld jobs that wait or are paused, the most that a user may have (user_queued)",
                         op->row->user, (long long)op->number[0]);
    sqlite3_reset(st);
    return rc == SQLITE_ROW ? SQLITE_OK : rc & 0xff;
}

/* Checked here, where the other job can neither be removed nor end in between. */
static int look_at_after(struct writer *w, struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_STATE];
    int rc, state = -1;

    if (op->row->after == 0)
        return SQLITE_OK;
    sqlite3_bind_int64(st, 1, op->row->after);
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        state = job_state_parse((const char *)sqlite3_column_text(st, 0));
    sqlite3_reset(st);
    if (rc == SQLITE_DONE)
        op->rc = err_field(&op->err, ERR_NOTFOUND, "run.after", "run.after: there is no job %lld", (long long)op->row->after);
    else if (state == JOB_COMPLETED || (!op->row->after_ok && (state == JOB_FAILED || state == JOB_CANCELLED)))
        op->rc = STORE_CLEAR;
    else if (state == JOB_FAILED || state == JOB_CANCELLED)
        op->rc = err_field(&op->err, ERR_STATE, "run.after", "run.after: job %lld, which was to complete, is %s", (long long)op->row->after,
                           job_state_name((enum job_state)state));
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc & 0xff;
}

static int submit(struct writer *w, struct op *op)
{
    const struct job_row *row = op->row;
    sqlite3_stmt *st = w->stmt[ST_TOKEN];
    int rc;

    sqlite3_bind_int64(st, 1, row->uid);
    bind_text(st, 2, op->text[0]);
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        op->value = sqlite3_column_int64(st, 0);
        op->rc = STORE_REPEATED;
    }
    sqlite3_reset(st);
    if (rc != SQLITE_DONE)
        return rc == SQLITE_ROW ? SQLITE_OK : rc & 0xff;
    rc = refuse_queued(w, op);
    if (rc == SQLITE_OK && op->rc == 0)
        rc = look_at_after(w, op);
    if (rc != SQLITE_OK || op->rc < 0)
        return rc;
    st = w->stmt[ST_SUBMIT];
    bind_text(st, 1, row->name);
    bind_text(st, 2, row->user);
    sqlite3_bind_int64(st, 3, row->uid);
    bind_text(st, 4, op->text[0]);
    bind_text(st, 5, job_state_name(row->state));
    bind_text(st, 6, row->reason);
    bind_text(st, 7, tier_name(row->tier));
    bind_text(st, 8, row->cuda ? "cuda" : "cpu");
    sqlite3_bind_int(st, 9, row->ranks);
    sqlite3_bind_int(st, 10, row->threads);
    sqlite3_bind_int(st, 11, row->priority);
    sqlite3_bind_int(st, 12, row->restarts);
    sqlite3_bind_int64(st, 13, row->steps);
    sqlite3_bind_double(st, 14, row->submitted);
    sqlite3_bind_int(st, 15, row->ranks_per_gpu);
    sqlite3_bind_int64(st, 16, op->rc == STORE_CLEAR ? 0 : row->after);
    sqlite3_bind_int(st, 17, row->after_ok);
    bind_text(st, 18, row->ticket);
    sqlite3_bind_int64(st, 19, row->id);
    bind_text(st, 20, job_kind_name(row->kind));
    sqlite3_bind_double(st, 21, row->time_limit);
    sqlite3_bind_int(st, 22, row->admin);
    sqlite3_bind_int64(st, 23, row->reported);
    sqlite3_bind_int(st, 24, row->gpus_asked);
    sqlite3_bind_int(st, 25, row->fixed);
    rc = writer_run(st);
    if (rc != SQLITE_OK)
        return rc;
    op->value = sqlite3_last_insert_rowid(w->db);
    st = w->stmt[ST_SPEC];
    sqlite3_bind_int64(st, 1, op->value);
    bind_text(st, 2, op->text[1]);
    rc = writer_run(st);
    if (rc != SQLITE_OK)
        return rc;
    st = w->stmt[ST_EVALUATION];
    sqlite3_bind_int64(st, 1, op->value);
    bind_text(st, 2, op->text[1]);
    sqlite3_bind_int64(st, 3, row->uid);
    return writer_run(st);
}

/* Takes a number that no job has had, and that no other job will have. */
static int take_id(struct writer *w, struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_NEXT_ID];
    int rc = writer_run(w->stmt[ST_FIRST_ID]);

    if (rc != SQLITE_OK)
        return rc;
    rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        op->value = sqlite3_column_int64(st, 0);
        rc = sqlite3_step(st);
    }
    sqlite3_reset(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc & 0xff;
}

static int skip_ids(struct writer *w, int64_t highest)
{
    int rc = writer_run(w->stmt[ST_FIRST_ID]);

    sqlite3_bind_int64(w->stmt[ST_SKIP_IDS], 1, highest);
    return rc == SQLITE_OK ? writer_run(w->stmt[ST_SKIP_IDS]) : rc;
}

static int save(struct writer *w, const struct job_row *row)
{
    sqlite3_stmt *st = w->stmt[ST_SAVE];

    sqlite3_bind_int64(st, 1, row->id);
    bind_text(st, 2, job_state_name(row->state));
    bind_text(st, 3, row->reason);
    bind_text(st, 4, job_want_name(row->want));
    bind_text(st, 5, tier_name(row->want_tier));
    sqlite3_bind_int(st, 6, row->want_checkpoint);
    sqlite3_bind_int(st, 7, row->want_eval);
    bind_text(st, 8, tier_name(row->tier));
    sqlite3_bind_int(st, 9, row->threads);
    sqlite3_bind_int(st, 10, row->deaths);
    sqlite3_bind_int(st, 11, row->attempt);
    bind_text(st, 12, row->nonce);
    sqlite3_bind_int64(st, 13, row->last_seq);
    sqlite3_bind_int64(st, 14, row->step);
    bind_real(st, 15, isfinite(row->images_per_s) ? row->images_per_s : 0);
    bind_real(st, 16, isfinite(row->cpu_seconds) ? row->cpu_seconds : 0);
    sqlite3_bind_int64(st, 17, row->max_rss);
    bind_time(st, 18, row->started);
    bind_time(st, 19, row->ended);
    bind_text(st, 20, row->gpus);
    bind_real(st, 21, row->cpu_before);
    sqlite3_bind_int(st, 22, row->priority);
    sqlite3_bind_int64(st, 23, row->after);
    sqlite3_bind_int(st, 24, row->backfill);
    sqlite3_bind_int64(st, 25, row->reported);
    bind_real(st, 26, row->seconds);
    bind_real(st, 27, row->seconds_before);
    bind_real(st, 28, row->limited);
    bind_real(st, 29, row->held);
    return writer_run(st);
}

/* Here no other request can remove the job, or queue it again, in between. */
static int reopen(struct writer *w, struct op *op)
{
    const struct job_row *row = op->row;
    sqlite3_stmt *st = w->stmt[ST_REOPEN];
    int rc = refuse_queued(w, op);

    if (rc != SQLITE_OK || op->rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, row->id);
    sqlite3_bind_int64(st, 2, row->steps);
    bind_text(st, 3, row->ticket);
    rc = writer_run(st);
    if (rc != SQLITE_OK)
        return rc;
    if (sqlite3_changes(w->db) == 0) {
        op->rc = err_field(&op->err, ERR_STATE, "id", "job %lld has changed meanwhile: try again", (long long)row->id);
        return rc;
    }
    if (!op->text[0])
        return save(w, row);
    st = w->stmt[ST_REOPEN_SPEC];
    sqlite3_bind_int64(st, 1, row->id);
    bind_text(st, 2, op->text[0]);
    rc = writer_run(st);
    return rc == SQLITE_OK ? save(w, row) : rc;
}

static int label(struct writer *w, struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_LABEL];
    int rc;

    sqlite3_bind_int64(st, 1, op->row->id);
    bind_text(st, 2, op->row->note);
    bind_text(st, 3, op->row->tags);
    bind_text(st, 4, op->text[0]);
    bind_text(st, 5, op->text[1]);
    rc = writer_run(st);
    op->rc = rc == SQLITE_OK && sqlite3_changes(w->db) == 0 ? STORE_CHANGED : 0;
    return rc;
}

/* ---- losses ---- */

static int add_losses(struct writer *w, const struct report *rep)
{
    for (int i = 0; i < rep->count; i++) {
        const struct report_value *v = &rep->values[i];
        int64_t id = 0;
        int rc;

        if (!GROW(w->points, w->points_cap, w->npoints + 1))
            return SQLITE_NOMEM;
        rc = writer_series(w, rep->job, rep->val, v->name, &id);
        if (rc != SQLITE_OK)
            return rc;
        w->points[w->npoints++] = (struct point){ id, rep->step, rep->epoch, v->num, v->den, rep->time, rep->tier };
    }
    return SQLITE_OK;
}

static int by_series_step(const void *pa, const void *pb)
{
    const struct point *a = pa, *b = pb;

    if (a->series != b->series)
        return a->series < b->series ? -1 : 1;
    return a->step < b->step ? -1 : a->step > b->step;
}

static int note_metric(struct writer *w, const struct report *rep, const char *metric)
{
    char text[REPORT_NAME_MAX + 120];

    snprintf(text, sizeof text, "a second value of %s at step %lld was refused: the trainer reported it twice", metric,
             (long long)rep->step);
    return writer_event(w, rep->job, rep->time, "error", "conflict", text);
}

/* A second value for the same series and step can only come from a supervisor that numbers wrongly. The first value
 * stays, and an event says so. */
static int note_conflict(struct writer *w, const struct point *p)
{
    char text[160];

    snprintf(text, sizeof text, "a second value of series %lld at step %lld was refused: the trainer reported it twice",
             (long long)p->series, (long long)p->step);
    return writer_event(w, 0, p->time, "error", "conflict", text);
}

/* Inserts rows sorted by (series, step): the pages of a curve are touched together. With a small cache this is five
 * times as fast as the order of arrival. */
static int flush_points(struct writer *w)
{
    sqlite3_stmt *st = w->stmt[ST_POINT];
    int rc = SQLITE_OK;

    if (w->npoints > 1)
        qsort(w->points, (size_t)w->npoints, sizeof *w->points, by_series_step);
    for (int i = 0; rc == SQLITE_OK && i < w->npoints; i++) {
        const struct point *p = &w->points[i];

        sqlite3_bind_int64(st, 1, p->series);
        sqlite3_bind_int64(st, 2, p->step);
        bind_real(st, 3, p->epoch);
        bind_real(st, 4, p->num);
        bind_real(st, 5, p->den);
        sqlite3_bind_int(st, 6, p->tier);
        sqlite3_bind_double(st, 7, p->time);
        rc = sqlite3_step(st);
        sqlite3_reset(st);
        rc = rc == SQLITE_DONE ? SQLITE_OK : rc & 0xff;
        if (rc == SQLITE_CONSTRAINT)
            rc = note_conflict(w, p);
    }
    w->npoints = 0;
    return rc;
}

/* last_seq is written with the rows that it stands for, once per job and batch. */
static int mark_seq(struct writer *w, const struct report *rep)
{
    for (int i = w->nmarks - 1; i >= 0; i--)
        if (w->marks[i].job == rep->job) {
            w->marks[i].seq = rep->seq;
            w->marks[i].reported = rep->reported;
            if (!rep->val && rep->step > w->marks[i].step)
                w->marks[i].step = rep->step;
            return SQLITE_OK;
        }
    if (!GROW(w->marks, w->marks_cap, w->nmarks + 1))
        return SQLITE_NOMEM;
    w->marks[w->nmarks++] = (struct seq_mark){ rep->job, rep->seq, rep->type == REPORT_LOSS && !rep->val ? rep->step : 0, rep->reported };
    return SQLITE_OK;
}

static int flush_marks(struct writer *w)
{
    sqlite3_stmt *st = w->stmt[ST_SEQ];
    int rc = SQLITE_OK;

    for (int i = 0; rc == SQLITE_OK && i < w->nmarks; i++) {
        sqlite3_bind_int64(st, 1, w->marks[i].job);
        sqlite3_bind_int64(st, 2, w->marks[i].seq);
        sqlite3_bind_int64(st, 3, w->marks[i].step);
        sqlite3_bind_int64(st, 4, w->marks[i].reported);
        rc = writer_run(st);
    }
    w->nmarks = 0;
    return rc;
}

static int flush(struct writer *w)
{
    int rc = flush_points(w);

    return rc == SQLITE_OK ? flush_marks(w) : rc;
}

/* ---- other records ---- */

static int add_metrics(struct writer *w, const struct report *rep)
{
    sqlite3_stmt *st = w->stmt[ST_EVAL];
    int rc = SQLITE_OK;

    for (int i = 0; rc == SQLITE_OK && i < rep->count; i++) {
        sqlite3_bind_int64(st, 1, rep->job);
        bind_text(st, 2, rep->values[i].name);
        sqlite3_bind_int64(st, 3, rep->step);
        bind_real(st, 4, rep->values[i].num);
        sqlite3_bind_double(st, 5, rep->time);
        rc = writer_run(st);
        if (rc == SQLITE_CONSTRAINT) /* the other values of the record are still stored */
            rc = note_metric(w, rep, rep->values[i].name);
    }
    return rc;
}

static int add_checkpoint(struct writer *w, const struct report *rep)
{
    sqlite3_stmt *st = w->stmt[ST_CHECKPOINT];

    sqlite3_bind_int64(st, 1, rep->job);
    sqlite3_bind_int64(st, 2, rep->step);
    bind_text(st, 3, rep->text);
    sqlite3_bind_int64(st, 4, rep->bytes);
    bind_real(st, 5, rep->val_loss);
    sqlite3_bind_int(st, 6, rep->best);
    sqlite3_bind_double(st, 7, rep->time);
    return writer_run(st);
}

static int set_tier(struct writer *w, int64_t job, int64_t step, int tier)
{
    sqlite3_stmt *st = w->stmt[ST_TIER];

    sqlite3_bind_int64(st, 1, job);
    sqlite3_bind_int64(st, 2, step);
    bind_text(st, 3, tier_name(tier));
    return writer_run(st);
}

static int add_tier(struct writer *w, const struct report *rep)
{
    char text[120];
    int rc = set_tier(w, rep->job, rep->step, rep->tier);

    snprintf(text, sizeof text, "tier %s from step %lld on", tier_name(rep->tier), (long long)rep->step);
    return rc == SQLITE_OK ? writer_event(w, rep->job, rep->time, "info", "tier", text) : rc;
}

static int note_rewind(struct writer *w, const struct report *rep)
{
    char text[200];

    if (rep->attempt <= 1 && rep->removed == 0)
        return SQLITE_OK;
    snprintf(text, sizeof text, "attempt %d goes on after step %lld; %lld rows of later steps were removed", rep->attempt,
             (long long)rep->step, (long long)rep->removed);
    return writer_event(w, rep->job, rep->time, "info", "rewound", text);
}

static int add_attempt(struct writer *w, const struct report *rep, const struct job_row *row)
{
    sqlite3_stmt *st = w->stmt[ST_ATTEMPT];
    int rc = note_rewind(w, rep);

    if (rc == SQLITE_OK && rep->step == 0 && row)
        rc = set_tier(w, rep->job, 1, row->tier); /* the history begins with the first step */
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_int64(st, 1, rep->job);
    sqlite3_bind_int(st, 2, rep->attempt);
    bind_text(st, 3, w->node);
    sqlite3_bind_int64(st, 4, rep->step);
    sqlite3_bind_double(st, 5, rep->time);
    return writer_run(st);
}

static int identify_attempt(struct writer *w, const struct report *rep)
{
    sqlite3_stmt *st = w->stmt[ST_IDENTITY];

    sqlite3_bind_int64(st, 1, rep->job);
    sqlite3_bind_int(st, 2, rep->attempt);
    bind_text(st, 3, rep->json);
    return writer_run(st);
}

static int end_attempt(struct writer *w, const struct report *rep, int attempt)
{
    sqlite3_stmt *st = w->stmt[ST_ENDED];
    int rc;

    sqlite3_bind_int64(st, 1, rep->job);
    sqlite3_bind_int(st, 2, attempt);
    sqlite3_bind_double(st, 3, rep->time);
    bind_text(st, 4, rep->kind);
    bind_text(st, 5, rep->text);
    rc = writer_run(st);
    if (rc != SQLITE_OK || rep->type == REPORT_END)
        return rc;
    return writer_event(w, rep->job, rep->time, "warning", "attempt_ended", rep->text[0] ? rep->text : rep->kind);
}

static int end_job(struct writer *w, const struct report *rep, const struct job_row *row)
{
    char text[REPORT_TEXT_MAX + REPORT_NAME_MAX + 8];
    int rc = end_attempt(w, rep, rep->attempt > 0 || !row ? rep->attempt : row->attempt);

    snprintf(text, sizeof text, "%s%s%s", rep->kind, rep->text[0] ? ": " : "", rep->text);
    return rc == SQLITE_OK ? writer_event(w, rep->job, rep->time, strcmp(rep->kind, "failed") == 0 ? "error" : "info", "end", text) : rc;
}

static int add_report(struct writer *w, const struct report *rep, const struct job_row *row)
{
    switch (rep->type) {
    case REPORT_LOSS:
        return add_losses(w, rep);
    case REPORT_EVAL:
        return add_metrics(w, rep);
    case REPORT_CHECKPOINT:
        return add_checkpoint(w, rep);
    case REPORT_TIER:
        return add_tier(w, rep);
    case REPORT_DATA:
        return writer_event(w, rep->job, rep->time, rep->best ? "info" : "warning", "data", rep->text);
    case REPORT_EVENT:
        return writer_event(w, rep->job, rep->time, rep->kind, rep->label, rep->text);
    case REPORT_ATTEMPT:
        return add_attempt(w, rep, row);
    case REPORT_IDENTITY:
        return identify_attempt(w, rep);
    case REPORT_ENDED:
        return end_attempt(w, rep, rep->attempt);
    case REPORT_END:
        return end_job(w, rep, row);
    }
    return SQLITE_OK;
}

/* Losses are collected. Any other record first writes the collected losses to the tables, so that the order of a job's
 * records holds. */
static int apply_report(struct writer *w, struct op *op)
{
    int rc = op->rep->type == REPORT_LOSS ? SQLITE_OK : flush(w);

    if (rc == SQLITE_OK && !op->rep->dropped)
        rc = add_report(w, op->rep, op->row);
    if (rc == SQLITE_OK || rc == SQLITE_CONSTRAINT) {
        int saved = op->row ? save(w, op->row) : mark_seq(w, op->rep);

        rc = saved == SQLITE_OK ? rc : saved;
    }
    return rc;
}

static int set_setting(struct writer *w, const struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_SETTING];

    bind_text(st, 1, op->text[0]);
    bind_text(st, 2, op->text[1]);
    return writer_run(st);
}

static int set_gpu(struct writer *w, const struct op *op)
{
    sqlite3_stmt *st = w->stmt[ST_GPU];

    for (int i = 0; i < 3; i++)
        bind_text(st, i + 1, op->text[i]);
    sqlite3_bind_int64(st, 4, op->number[0]);
    sqlite3_bind_int64(st, 5, op->number[1]);
    sqlite3_bind_double(st, 6, op->time);
    bind_time(st, 7, op->since);
    return writer_run(st);
}

static int add_usage(struct writer *w, const struct store_usage *u)
{
    sqlite3_stmt *st = w->stmt[ST_USAGE];

    sqlite3_bind_int64(st, 1, u->job);
    sqlite3_bind_int64(st, 2, u->time);
    sqlite3_bind_double(st, 3, u->cpu);
    sqlite3_bind_int64(st, 4, u->memory);
    bind_real(st, 5, u->gpu < 0 ? NAN : u->gpu);
    bind_real(st, 6, u->gpu_memory < 0 ? NAN : (double)u->gpu_memory);
    return writer_run(st);
}

static int add_grant(struct writer *w, const struct store_grant *g)
{
    sqlite3_stmt *st = w->stmt[ST_GRANT];

    sqlite3_bind_int64(st, 1, g->hour);
    sqlite3_bind_int64(st, 2, g->uid);
    bind_text(st, 3, g->cuda ? "cuda" : "cpu");
    bind_text(st, 4, g->user);
    sqlite3_bind_double(st, 5, g->slot_s);
    return writer_run(st);
}

static int apply(struct writer *w, struct op *op)
{
    switch (op->kind) {
    case OP_SUBMIT:
        return submit(w, op);
    case OP_TAKE_ID:
        return take_id(w, op);
    case OP_SKIP_IDS:
        return skip_ids(w, op->job);
    case OP_REOPEN: {
        int rc = flush(w);

        return rc == SQLITE_OK ? reopen(w, op) : rc;
    }
    case OP_LABEL:
        return label(w, op);
    case OP_SAVE: {
        int rc = flush(w); /* marks of older records must not come after a newer row */

        return rc == SQLITE_OK ? save(w, op->row) : rc;
    }
    case OP_REPORT:
        return apply_report(w, op);
    case OP_EVENT:
        return writer_event(w, op->job, op->time, op->text[0], op->text[1], op->text[2]);
    case OP_SETTING:
        return set_setting(w, op);
    case OP_GPU:
        return set_gpu(w, op);
    case OP_USAGE:
        return add_usage(w, &op->usage);
    case OP_GRANT:
        return add_grant(w, &op->grant);
    case OP_REMOVE:
    case OP_SWEEP:
    case OP_REWIND: {
        int rc = flush(w); /* writes losses of the same batch before rows are removed */

        return rc != SQLITE_OK         ? rc
               : op->kind == OP_REMOVE ? writer_remove(w, op)
               : op->kind == OP_SWEEP  ? writer_sweep(w, op)
                                       : writer_rewind(w, op);
    }
    case OP_THIN:
        return writer_thin(w, op);
    case OP_CLEAR:
        return writer_clear(w, op);
    case OP_FORGET:
        return writer_forget(w, op);
    case OP_RUNNING:
        return writer_running(w, op);
    case OP_SHRINK:
        break;
    }
    return SQLITE_OK;
}

/* ---- batches ---- */

int db_no_room(sqlite3 *db, int rc, int last)
{
    int why = sqlite3_system_errno(db);

    if (why == 0)
        why = last; /* SQLite 3.40 forgets the error when it gives its locks back */
    if (rc == SQLITE_FULL)
        return ENOSPC;
    return rc == SQLITE_IOERR && room_lacks(why) ? why : 0;
}

static int roll_back(struct writer *w, int rc)
{
    w->full = db_no_room(w->db, rc, errno);
    w->damaged = rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB;
    sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
    writer_forget_series(w);
    w->npoints = w->nmarks = 0;
    return rc;
}

int writer_batch(struct writer *w, struct op *first)
{
    int rc = w->damaged ? SQLITE_CORRUPT : sqlite3_exec(w->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

    if (w->damaged)
        return rc;
    for (struct op *op = first; rc == SQLITE_OK && op; op = op->next) {
        op->rc = 0;
        rc = apply(w, op);
        if (rc == SQLITE_CONSTRAINT) {
            op->rc = err_set(&op->err, ERR_STATE, "the store refused the change: %s", sqlite3_errmsg(w->db));
            rc = SQLITE_OK;
        }
    }
    if (rc == SQLITE_OK)
        rc = flush(w);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(w->db, "COMMIT", NULL, NULL, NULL);
    return rc == SQLITE_OK ? rc : roll_back(w, rc);
}

int op_rows(const struct op *op)
{
    if (op->kind == OP_SWEEP || op->kind == OP_REWIND || op->kind == OP_THIN || op->kind == OP_FORGET)
        return SWEEP_ROWS;
    return op->kind == OP_REPORT ? report_rows(op->rep) : 1;
}
