/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_lists.c - the queries about evaluation, events,
 * attempts, checkpoints, tiers. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "daemon/base/text.h"

/* ---- evaluation ---- */

/* `sql` lists names by job and dataset, ?1 and ?2, a bounded number of them, and first the name ?3 if it is one.
 * Returns ERR_INPUT if it gives names, but not `name`. An empty list is no error: names may still come. */
static int check_name(sqlite3 *db, const char *sql, const struct store_eval_query *q, const char *field, const char *name, struct err *err)
{
    sqlite3_stmt *st = NULL;
    struct text known = { 0 };
    bool found = false;
    int rc = name ? reader_prepare(db, sql, &st, err) : 0, n = 0;

    if (!name || rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, q->job);
    sqlite3_bind_text(st, 2, q->dataset, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, name, -1, SQLITE_STATIC);
    for (; !found && (rc = reader_step(db, st, err)) == 1; n++) {
        const char *one = (const char *)sqlite3_column_text(st, 0);

        found = strcmp(one, name) == 0;
        text_addf(&known, "%s%s", n ? ", " : "", one);
    }
    if (rc == 0 && n > 0 && !found)
        rc = err_field(err, ERR_INPUT, field, "%s: job %lld has no '%.63s'; it has %.160s%s", field, (long long)q->job, name,
                       known.p ? known.p : "", known.len > 160 ? " ..." : "");
    text_free(&known);
    sqlite3_finalize(st);
    return rc < 0 ? rc : 0;
}

/* A job's user may have given it millions of names. */
#define METRICS(rows)                                                                        \
    "SELECT ?3 WHERE EXISTS (SELECT 1 FROM " rows " AND metric=?3) UNION ALL SELECT * FROM " \
    "(SELECT metric FROM (SELECT DISTINCT metric FROM " rows " ORDER BY metric LIMIT 512) ORDER BY instr(metric, ':') > 0, metric)"

static int check_names(sqlite3 *db, const struct store_eval_query *q, struct err *err)
{
    int rc =
        check_name(db,
                   "SELECT v.dataset FROM evaluations v JOIN jobs j ON j.id=v.by WHERE v.job=?1 AND v.dataset=?3 UNION ALL SELECT * FROM "
                   "(SELECT DISTINCT v.dataset FROM evaluations v JOIN jobs j ON j.id=v.by WHERE v.job=?1 ORDER BY v.dataset LIMIT 64)",
                   q, "set", q->dataset, err);

    return rc < 0 ? rc
                  : check_name(db, q->dataset ? METRICS("eval_on WHERE job=?1 AND dataset=?2") : METRICS("eval WHERE job=?1"), q, "metric",
                               q->metric, err);
}

int store_eval_rows(struct store *s, const struct store_eval_query *q, struct text *out, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    char after[REPORT_NAME_MAX + 6] = "";
    long long step = LLONG_MIN;
    int64_t n = 0;
    int rc = 0;

    if (q->cursor && (sscanf(q->cursor, "%lld:%68[^\n]", &step, after) != 2))
        rc = err_field(err, ERR_INPUT, "cursor", "cursor: must be the cursor of an earlier page");
    if (rc == 0 && !q->cursor)
        rc = check_names(db, q, err);
    if (rc == 0)
        rc = reader_prepare(
            db,
            q->dataset
                ? "SELECT step, metric, value, time FROM eval_on WHERE job=?1 AND dataset=?6 AND (?2 IS NULL OR metric=?2) AND "
                  "(metric, step)>(?3, ?4) ORDER BY metric, step LIMIT ?5"
                : "SELECT step, metric, value, time FROM eval WHERE job=?1 AND (?2 IS NULL OR metric=?2) AND (metric, step)>(?3, ?4) "
                  "ORDER BY metric, step LIMIT ?5",
            &st, err);
    text_add(out, "{\"rows\":[");
    if (rc == 0) {
        sqlite3_bind_int64(st, 1, q->job);
        sqlite3_bind_text(st, 2, q->metric, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 3, after, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 4, step);
        sqlite3_bind_int64(st, 5, q->limit);
        if (q->dataset)
            sqlite3_bind_text(st, 6, q->dataset, -1, SQLITE_STATIC);
        for (; out->len < STORE_PAGE_BYTES && (rc = reader_step(db, st, err)) == 1; n++) {
            row_add(out, st, n == 0);
            step = sqlite3_column_int64(st, 0);
            snprintf(after, sizeof after, "%s", (const char *)sqlite3_column_text(st, 1));
        }
    }
    text_add(out, "],\"cursor\":");
    if (rc >= 0 && (n == q->limit || rc == 1)) {
        char next[REPORT_NAME_MAX + 30];

        snprintf(next, sizeof next, "%lld:%s", step, after);
        text_json(out, next);
    } else {
        text_add(out, "null");
    }
    text_add(out, "}");
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc < 0 ? rc : 0;
}

/* Writes a page of rows from `sql`. Its parameters are the job, the cursor and the limit; its first column is the next
 * cursor. */
static int list_page(struct store *s, const char *sql, const char *name, int64_t id, const struct store_page *page, struct text *out,
                     struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int64_t n = 0, last = 0;
    int rc = reader_prepare(db, sql, &st, err);

    text_addf(out, "{\"%s\":[", name);
    if (rc == 0) {
        sqlite3_bind_int64(st, 1, id);
        sqlite3_bind_int64(st, 2, page->cursor);
        sqlite3_bind_int64(st, 3, page->limit);
        for (; out->len < STORE_PAGE_BYTES && (rc = reader_step(db, st, err)) == 1; n++) {
            row_add(out, st, n == 0);
            last = sqlite3_column_int64(st, 0);
        }
    }
    if (rc >= 0 && (n == page->limit || rc == 1))
        text_addf(out, "],\"cursor\":%lld}", (long long)last);
    else
        text_add(out, "],\"cursor\":null}");
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc < 0 ? rc : 0;
}

int store_events(struct store *s, int64_t id, const struct store_page *page, struct text *out, struct err *err)
{
    return list_page(s,
                     id ? "SELECT id, job, time, level, kind, text FROM events WHERE job=?1 AND (?2=0 OR id<?2) ORDER BY id DESC LIMIT ?3"
                        : "SELECT id, job, time, level, kind, text FROM events WHERE (?2=0 OR id<?2) ORDER BY id DESC LIMIT ?3",
                     "events", id, page, out, err);
}

int store_usage_rows(struct store *s, int64_t id, const struct store_page *page, struct text *out, struct err *err)
{
    return list_page(s,
                     "SELECT time, cpu, memory, gpu, gpu_memory FROM usage WHERE job=?1 AND (?2=0 OR time<?2) ORDER BY time DESC LIMIT ?3",
                     "rows", id, page, out, err);
}

int store_load_grants(struct store *s, int64_t from, void (*each)(void *arg, const struct store_grant *g), void *arg, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc = reader_prepare(db, "SELECT hour, uid, device='cuda', user, slot_seconds FROM granted WHERE hour>=?1", &st, err);

    if (rc == 0)
        sqlite3_bind_int64(st, 1, from);
    while (rc == 0 && (rc = reader_step(db, st, err)) == 1) {
        struct store_grant g = { .hour = sqlite3_column_int64(st, 0),
                                 .uid = (uint32_t)sqlite3_column_int64(st, 1),
                                 .cuda = sqlite3_column_int(st, 2) != 0,
                                 .slot_s = sqlite3_column_double(st, 4) };

        snprintf(g.user, sizeof g.user, "%s", (const char *)sqlite3_column_text(st, 3));
        each(arg, &g);
        rc = 0;
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

int store_user_usage(struct store *s, int64_t from, struct text *out, struct err *err)
{
    sqlite3 *db = reader_take(s);
    int rc;

    text_add(out, "{\"rows\":");
    rc = rows_list(db,
                   "SELECT user, uid, sum(iif(device='cpu', slot_seconds, 0))/3600 AS cpu_slot_hours, "
                   "sum(iif(device='cuda', slot_seconds, 0))/3600 AS gpu_hours FROM granted WHERE hour>=?1 GROUP BY uid "
                   "ORDER BY gpu_hours DESC, cpu_slot_hours DESC, uid LIMIT ?2",
                   from, out, err);
    text_add(out, "}");
    reader_give(s, db);
    return rc;
}

#define TIERS_SELECT "SELECT step, tier FROM tiers WHERE job=?1 ORDER BY step LIMIT ?2"

/* A row outlives its checkpoint, which `keep` or a user may have removed. So each row says whether the checkpoint is
 * there. Its path follows from folder and step: a reported path is what the job's user likes. folder NULL: a program,
 * whose paths are as it says. */
static int list_checkpoints(sqlite3 *db, int64_t id, const char *folder, store_checkpoint_fn *there, void *arg, struct text *out,
                            struct err *err)
{
    sqlite3_stmt *st;
    int rc = reader_prepare(db,
                            "SELECT step, coalesce(?3||'/checkpoints/step-'||step, path) AS path, bytes, val_loss, best, time "
                            "FROM checkpoints WHERE job=?1 ORDER BY step DESC LIMIT ?2",
                            &st, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int(st, 2, ROWS_LISTED);
    if (folder)
        sqlite3_bind_text(st, 3, folder, -1, SQLITE_STATIC);
    text_add(out, "[");
    for (bool first = true; (rc = reader_step(db, st, err)) == 1; first = false) {
        row_add_open(out, st, first);
        text_add(out, there(arg, sqlite3_column_int64(st, 0)) ? ",\"there\":true}" : ",\"there\":false}");
    }
    text_add(out, "]");
    sqlite3_finalize(st);
    return rc == 0 && out->failed ? err_set(err, -ENOMEM, "out of memory") : rc;
}

int store_each_checkpoint(struct store *s, int64_t id, store_checkpoint_fn *each, void *arg, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st;
    int rc = reader_prepare(db, "SELECT step FROM checkpoints WHERE job=?1 ORDER BY step DESC", &st, err);

    if (rc == 0)
        sqlite3_bind_int64(st, 1, id);
    while (rc >= 0 && (rc = reader_step(db, st, err)) == 1 && each(arg, sqlite3_column_int64(st, 0)))
        ;
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc < 0 ? rc : 0;
}

/* Writes the newest report of the weights that were loaded from model.init; null: there is no report. */
static int add_init(sqlite3 *db, int64_t id, struct text *out, struct err *err)
{
    sqlite3_stmt *st;
    int rc = reader_prepare(db, "SELECT text FROM events WHERE job=?1 AND kind='init' ORDER BY id DESC LIMIT 1", &st, err);

    if (rc < 0)
        return rc;
    sqlite3_bind_int64(st, 1, id);
    rc = reader_step(db, st, err);
    if (rc == 1)
        text_json(out, (const char *)sqlite3_column_text(st, 0));
    else
        text_add(out, "null");
    sqlite3_finalize(st);
    return rc < 0 ? rc : 0;
}

int store_job_details(struct store *s, int64_t id, const char *folder, store_checkpoint_fn *there, void *arg, struct text *out,
                      struct err *err)
{
    sqlite3 *db = reader_take(s);
    int rc;

    text_add(out, "\"attempts\":");
    rc = rows_list(db,
                   "SELECT attempt, node, resume_step, started, ended, outcome, reason, identity FROM attempts WHERE job=?1 "
                   "ORDER BY attempt DESC LIMIT ?2",
                   id, out, err);
    text_add(out, ",\"checkpoints\":");
    if (rc == 0)
        rc = list_checkpoints(db, id, folder, there, arg, out, err);
    text_add(out, ",\"tiers\":");
    if (rc == 0)
        rc = rows_list(db, TIERS_SELECT, id, out, err);
    text_add(out, ",\"init\":");
    if (rc == 0)
        rc = add_init(db, id, out, err);
    reader_give(s, db);
    return rc;
}

int store_tiers(struct store *s, int64_t id, struct text *out, struct err *err)
{
    sqlite3 *db = reader_take(s);
    int rc = rows_list(db, TIERS_SELECT, id, out, err);

    reader_give(s, db);
    return rc;
}
