/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_remove.c - removal of data. The row of a removed job
 * goes at once, all else of it in pieces of SWEEP_ROWS rows, so that reports of other jobs wait for one piece at most.
 * So are the rows that a new attempt reports again. */
#include <stdio.h>
#include <string.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"

enum { REMEMBER_S = 7 * 24 * 3600 };

/* Prepared each time: few rows are removed beside those that come. */
static int prepare(struct writer *w, const char *sql, int64_t first, int64_t second, sqlite3_stmt **ret)
{
    int rc = sqlite3_prepare_v2(w->db, sql, -1, ret, NULL);

    if (rc != SQLITE_OK)
        return rc & 0xff;
    sqlite3_bind_int64(*ret, 1, first);
    if (sqlite3_bind_parameter_count(*ret) > 1)
        sqlite3_bind_int64(*ret, 2, second);
    return SQLITE_OK;
}

static int change(struct writer *w, const char *sql, int64_t first, int64_t second)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(w, sql, first, second, &st);

    if (rc == SQLITE_OK)
        rc = writer_run(st);
    sqlite3_finalize(st);
    return rc;
}

/* ---- the job itself ---- */

/* The caller has looked at the row. This check decides, since changes may have been on their way to the disk
 * meanwhile. */
static int check_done(struct writer *w, struct op *op)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(w, "SELECT state FROM jobs WHERE id=?1", op->job, 0, &st);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        int state = job_state_parse(name);

        if (state < 0 || !job_is_done((enum job_state)state))
            op->rc =
                err_field(&op->err, ERR_STATE, "id", "job %lld is %s: only jobs that have ended can be removed", (long long)op->job, name);
    } else if (rc == SQLITE_DONE) {
        op->rc = err_field(&op->err, ERR_NOTFOUND, "id", "no job %lld", (long long)op->job);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc & 0xff;
}

static int note_removal(struct writer *w, const struct op *op)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(w,
                     "INSERT INTO removed (job, name, user, uid, token, time, submitted, attempt) "
                     "SELECT id, name, user, uid, token, ?2, submitted, attempt FROM jobs WHERE id=?1",
                     op->job, 0, &st);

    if (rc == SQLITE_OK) {
        sqlite3_bind_double(st, 2, op->time);
        rc = writer_run(st);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_OK ? writer_event(w, 0, op->time, "info", "removed", op->text[0]) : rc;
}

int writer_remove(struct writer *w, struct op *op)
{
    int rc = check_done(w, op);

    if (rc != SQLITE_OK || op->rc < 0)
        return rc;
    rc = note_removal(w, op);
    if (rc == SQLITE_OK)
        rc = change(w, "DELETE FROM specs WHERE job=?1", op->job, 0);
    return rc == SQLITE_OK ? change(w, "DELETE FROM jobs WHERE id=?1", op->job, 0) : rc;
}

/* ---- all else of the job ---- */

/* ?1: the job, ?2: the maximum number of rows. A curve goes after its points. */
static const char *const sweeps[] = {
    "DELETE FROM point WHERE (series, step) IN (SELECT series, step FROM point JOIN series ON series=id WHERE job=?1 LIMIT ?2)",
    "DELETE FROM series WHERE id IN (SELECT id FROM series WHERE job=?1 LIMIT ?2)",
    "DELETE FROM eval WHERE job=?1 AND (metric, step) IN (SELECT metric, step FROM eval WHERE job=?1 LIMIT ?2)",
    "DELETE FROM events WHERE id IN (SELECT id FROM events WHERE job=?1 LIMIT ?2)",
    "DELETE FROM checkpoints WHERE job=?1 AND step IN (SELECT step FROM checkpoints WHERE job=?1 LIMIT ?2)",
    "DELETE FROM usage WHERE job=?1 AND time IN (SELECT time FROM usage WHERE job=?1 LIMIT ?2)",
    "DELETE FROM tiers WHERE job=?1 AND step IN (SELECT step FROM tiers WHERE job=?1 LIMIT ?2)",
    "DELETE FROM evaluations WHERE by IN (SELECT by FROM evaluations WHERE by=?1 OR job=?1 LIMIT ?2)",
    "DELETE FROM attempts WHERE job=?1 AND attempt IN (SELECT attempt FROM attempts WHERE job=?1 LIMIT ?2)",
};

/* Also forgets jobs whose removal was completed long ago. */
static int finish(struct writer *w, const struct op *op)
{
    int rc = change(w, "UPDATE removed SET pending=0 WHERE job=?1", op->job, 0);

    return rc == SQLITE_OK ? change(w, "DELETE FROM removed WHERE NOT pending AND time<?1", (int64_t)op->time - REMEMBER_S, 0) : rc;
}

int writer_sweep(struct writer *w, struct op *op)
{
    int left = SWEEP_ROWS;

    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps && left > 0; i++) {
        int rc = change(w, sweeps[i], op->job, left);

        if (rc != SQLITE_OK)
            return rc;
        left -= sqlite3_changes(w->db);
    }
    op->value = left <= 0;
    return op->value ? SQLITE_OK : finish(w, op);
}

/* ---- rows that a new attempt reports again ---- */

/* Removes points of the curves behind the place, and curves without a point: each query would pass them. A curve costs
 * one row more, so that many curves without such points take several pieces, too. Returns an SQLite code; *ret_end:
 * there are no more. */
static int rewind_points(struct writer *w, const struct store_rewind *r, struct store_rewind_place *p, bool *ret_end)
{
    static const char *const cut = "DELETE FROM point WHERE series=?1 AND step>?2 AND step<=(SELECT max(step) FROM (SELECT step FROM point "
                                   "WHERE series=?1 AND step>?2 ORDER BY step LIMIT ?3))";
    static const char *const drop = "DELETE FROM series WHERE id=?1 AND NOT EXISTS (SELECT 1 FROM point WHERE series=?1)";
    sqlite3_stmt *curves = NULL, *st = NULL, *empty = NULL;
    int left = SWEEP_ROWS, rc = prepare(w, cut, 0, 0, &st);

    if (rc == SQLITE_OK)
        rc = prepare(w, drop, 0, 0, &empty);
    if (rc == SQLITE_OK)
        rc = prepare(w, "SELECT id, split, term FROM series WHERE job=?1 AND (split, term)>(?3, ?4) ORDER BY split, term LIMIT ?2", r->job,
                     SWEEP_ROWS, &curves);
    if (rc == SQLITE_OK) {
        bind_text(curves, 3, r->at.key[0]);
        bind_text(curves, 4, r->at.key[1]);
    }
    while (rc == SQLITE_OK && left > 0 && (rc = sqlite3_step(curves)) == SQLITE_ROW) {
        sqlite3_bind_int64(st, 1, sqlite3_column_int64(curves, 0));
        sqlite3_bind_int64(st, 2, r->step);
        sqlite3_bind_int(st, 3, left);
        rc = writer_run(st);
        p->removed += sqlite3_changes(w->db);
        left -= sqlite3_changes(w->db) + 1;
        for (int i = 0; left >= 0 && i < 2; i++)
            snprintf(p->key[i], sizeof p->key[i], "%s", (const char *)sqlite3_column_text(curves, i + 1));
        if (rc == SQLITE_OK) {
            sqlite3_bind_int64(empty, 1, sqlite3_column_int64(curves, 0));
            rc = writer_run(empty);
        }
    }
    *ret_end = rc == SQLITE_DONE;
    writer_forget_series(w);
    sqlite3_finalize(curves);
    sqlite3_finalize(empty);
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? SQLITE_OK : rc & 0xff;
}

static void bind_place(sqlite3_stmt *st, int at, const char *metric, int64_t step)
{
    bind_text(st, at, metric);
    sqlite3_bind_int64(st, at + 1, step);
}

/* Removes those of later steps from SWEEP_ROWS scores behind the place. */
static int rewind_scores(struct writer *w, const struct store_rewind *r, struct store_rewind_place *p, bool *ret_end)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(w, "SELECT metric, step FROM eval WHERE job=?1 AND (metric, step)>(?3, ?4) ORDER BY metric, step LIMIT 1 OFFSET ?2",
                     r->job, SWEEP_ROWS - 1, &st);

    if (rc == SQLITE_OK) {
        bind_place(st, 3, r->at.key[0], r->at.key_step);
        rc = sqlite3_step(st);
    }
    *ret_end = rc == SQLITE_DONE;
    if (rc == SQLITE_ROW) {
        snprintf(p->key[0], sizeof p->key[0], "%s", (const char *)sqlite3_column_text(st, 0));
        p->key_step = sqlite3_column_int64(st, 1);
    }
    sqlite3_finalize(st);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return rc & 0xff;
    rc = prepare(w, "DELETE FROM eval WHERE job=?1 AND step>?2 AND (metric, step)>(?3, ?4) AND (metric, step)<=(?5, ?6)", r->job, r->step,
                 &st);
    if (rc != SQLITE_OK)
        return rc;
    bind_place(st, 3, r->at.key[0], r->at.key_step);
    bind_place(st, 5, p->key[0], p->key_step);
    if (*ret_end)
        sqlite3_bind_zeroblob(st, 5, 0); /* a blob comes after all texts */
    rc = writer_run(st);
    p->removed += rc == SQLITE_OK ? sqlite3_changes(w->db) : 0;
    sqlite3_finalize(st);
    return rc;
}

static int rewind_checkpoints(struct writer *w, const struct store_rewind *r, bool *ret_end)
{
    int rc = change(w,
                    "DELETE FROM checkpoints WHERE job=?1 AND step>?2 AND step<=(SELECT max(step) FROM (SELECT step FROM checkpoints "
                    "WHERE job=?1 AND step>?2 ORDER BY step LIMIT 1000))",
                    r->job, r->step);

    *ret_end = rc == SQLITE_OK && sqlite3_changes(w->db) < SWEEP_ROWS;
    return rc;
}

/* Writes only `next`: a batch that fails is tried again from the same place. */
int writer_rewind(struct writer *w, struct op *op)
{
    struct store_rewind *r = op->rewind;
    struct store_rewind_place *p = &r->next;
    bool end = false;
    int rc;

    *p = r->at;
    rc = p->table == 0 ? rewind_points(w, r, p, &end) : p->table == 1 ? rewind_scores(w, r, p, &end) : rewind_checkpoints(w, r, &end);
    if (end)
        *p = (struct store_rewind_place){ .table = p->table + 1, .removed = p->removed };
    return rc;
}

/* ---- data that is kept for a limited time ---- */

static int mark_cleared(struct writer *w, int64_t job, int what)
{
    return change(w, "UPDATE jobs SET cleared = cleared | ?2 WHERE id=?1", job, what);
}

/* The last point of each curve stays, since a list of jobs shows it. The rows of usage go with the points. */
int writer_thin(struct writer *w, struct op *op)
{
    int rc = check_done(w, op);

    if (rc != SQLITE_OK || op->rc < 0)
        return rc;
    rc = change(w, "DELETE FROM usage WHERE job=?1 AND time IN (SELECT time FROM usage WHERE job=?1 LIMIT ?2)", op->job, SWEEP_ROWS);
    op->value = rc == SQLITE_OK && sqlite3_changes(w->db) == SWEEP_ROWS;
    if (rc != SQLITE_OK || op->value)
        return rc;
    rc = change(w,
                "DELETE FROM point WHERE (series, step) IN (SELECT p.series, p.step FROM series s JOIN point p ON p.series=s.id "
                "WHERE s.job=?1 AND p.step<(SELECT max(step) FROM point WHERE series=s.id) LIMIT ?2)",
                op->job, SWEEP_ROWS);

    op->value = rc == SQLITE_OK && sqlite3_changes(w->db) == SWEEP_ROWS;
    return rc != SQLITE_OK || op->value ? rc : mark_cleared(w, op->job, STORE_CLEARED_POINTS);
}

int writer_clear(struct writer *w, struct op *op)
{
    int rc = check_done(w, op);

    return rc != SQLITE_OK || op->rc < 0 ? rc : mark_cleared(w, op->job, STORE_CLEARED_LOGS);
}

/* Events are numbered in the order in which they were stored, so the day of an event needs no clock. */
int writer_forget(struct writer *w, struct op *op)
{
    int rc = change(w,
                    "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT ?2) "
                    "AND id<=(SELECT max(event) FROM days WHERE day*86400<=?1)",
                    (int64_t)op->time, SWEEP_ROWS);

    op->value = rc == SQLITE_OK && sqlite3_changes(w->db) == SWEEP_ROWS;
    return rc;
}

int writer_running(struct writer *w, const struct op *op)
{
    int rc =
        change(w, "INSERT INTO meta VALUES ('running', ?1) ON CONFLICT (key) DO UPDATE SET value=excluded.value", (int64_t)op->time, 0);

    return rc == SQLITE_OK ? change(w, "INSERT OR IGNORE INTO days SELECT ?1/86400, coalesce(max(id), 0) FROM events", (int64_t)op->time, 0)
                           : rc;
}
