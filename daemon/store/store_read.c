/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/store/store_read.c - reading connections, and the queries about
 * jobs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/job/label.h"
#include "daemon/store/store.h"
#include "daemon/store/store_impl.h"
#include "daemon/base/text.h"
#include "proto/tier.h"

/* ---- connections ---- */

static int free_reader(const struct store *s)
{
    for (int i = 0; i < STORE_READERS; i++)
        if (!s->reader_busy[i])
            return i;
    return -1;
}

sqlite3 *reader_take(struct store *s)
{
    int i;

    pthread_mutex_lock(&s->reader_lock);
    while ((i = free_reader(s)) < 0)
        pthread_cond_wait(&s->reader_free, &s->reader_lock);
    s->reader_busy[i] = true;
    pthread_mutex_unlock(&s->reader_lock);
    /* One snapshot for all statements of a query. It also halves the time of a thinned curve, which has a statement per
     * point. */
    sqlite3_exec(s->reader[i], "BEGIN", NULL, NULL, NULL);
    return s->reader[i];
}

void reader_give(struct store *s, sqlite3 *db)
{
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    pthread_mutex_lock(&s->reader_lock);
    for (int i = 0; i < STORE_READERS; i++)
        if (s->reader[i] == db)
            s->reader_busy[i] = false;
    pthread_cond_signal(&s->reader_free);
    pthread_mutex_unlock(&s->reader_lock);
}

int reader_prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret, struct err *err)
{
    if (sqlite3_prepare_v2(db, sql, -1, ret, NULL) == SQLITE_OK)
        return 0;
    return err_set(err, ERR_CORRUPT, "detd.db: %s", sqlite3_errmsg(db));
}

int reader_step(sqlite3 *db, sqlite3_stmt *st, struct err *err)
{
    int rc = sqlite3_step(st);

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_INTERRUPT)
        return err_set(err, ERR_STATE, "the daemon is stopping");
    return rc == SQLITE_DONE ? 0 : err_set(err, ERR_CORRUPT, "detd.db: %s", sqlite3_errmsg(db));
}

/* ---- rows ---- */

#define JOB_SELECT                                                                                                                       \
    "SELECT id, name, user, uid, state, reason, want, want_tier, want_checkpoint, want_eval, tier, device, ranks, threads, priority, "   \
    "restarts, deaths, attempt, nonce, last_seq, step, steps, images_per_s, cpu_seconds, max_rss, submitted, started, ended, gpus, "     \
    "cpu_before, ranks_per_gpu, after, after_ok, backfill, ticket, reported, note, tags, seconds, seconds_before, limited, kind, held, " \
    "time_limit, admin, gpus_asked, fixed FROM jobs "

static const char *column(sqlite3_stmt *st, int at)
{
    const char *s = (const char *)sqlite3_column_text(st, at);

    return s ? s : "";
}

static void read_row(sqlite3_stmt *st, struct job_row *row)
{
    int state = job_state_parse(column(st, 4));

    memset(row, 0, sizeof *row);
    row->id = sqlite3_column_int64(st, 0);
    snprintf(row->name, sizeof row->name, "%s", column(st, 1));
    snprintf(row->user, sizeof row->user, "%s", column(st, 2));
    row->uid = (uint32_t)sqlite3_column_int64(st, 3);
    row->state = state < 0 ? JOB_FAILED : (enum job_state)state;
    snprintf(row->reason, sizeof row->reason, "%s", column(st, 5));
    row->want = job_want_parse(column(st, 6));
    row->want_tier = tier_parse(column(st, 7));
    row->want_checkpoint = sqlite3_column_int(st, 8) != 0;
    row->want_eval = sqlite3_column_int(st, 9) != 0;
    row->tier = tier_parse(column(st, 10));
    row->cuda = strcmp(column(st, 11), "cuda") == 0;
    row->ranks = sqlite3_column_int(st, 12);
    row->threads = sqlite3_column_int(st, 13);
    row->priority = sqlite3_column_int(st, 14);
    row->restarts = sqlite3_column_int(st, 15);
    row->deaths = sqlite3_column_int(st, 16);
    row->attempt = sqlite3_column_int(st, 17);
    snprintf(row->nonce, sizeof row->nonce, "%s", column(st, 18));
    row->last_seq = sqlite3_column_int64(st, 19);
    row->step = sqlite3_column_int64(st, 20);
    row->steps = sqlite3_column_int64(st, 21);
    row->images_per_s = sqlite3_column_double(st, 22);
    row->cpu_seconds = sqlite3_column_double(st, 23);
    row->max_rss = sqlite3_column_int64(st, 24);
    row->submitted = sqlite3_column_double(st, 25);
    row->started = sqlite3_column_double(st, 26);
    row->ended = sqlite3_column_double(st, 27);
    snprintf(row->gpus, sizeof row->gpus, "%s", column(st, 28));
    row->cpu_before = sqlite3_column_double(st, 29);
    row->ranks_per_gpu = sqlite3_column_int(st, 30);
    row->after = sqlite3_column_int64(st, 31);
    row->after_ok = sqlite3_column_int(st, 32) != 0;
    row->backfill = sqlite3_column_int(st, 33) != 0;
    snprintf(row->ticket, sizeof row->ticket, "%s", column(st, 34));
    row->reported = sqlite3_column_int64(st, 35);
    snprintf(row->note, sizeof row->note, "%s", column(st, 36));
    snprintf(row->tags, sizeof row->tags, "%s", column(st, 37));
    row->seconds = sqlite3_column_double(st, 38);
    row->seconds_before = sqlite3_column_double(st, 39);
    row->limited = sqlite3_column_double(st, 40);
    row->kind = job_kind_parse(column(st, 41));
    row->held = sqlite3_column_double(st, 42);
    row->time_limit = sqlite3_column_double(st, 43);
    row->admin = sqlite3_column_int(st, 44) != 0;
    row->gpus_asked = sqlite3_column_int(st, 45);
    row->fixed = sqlite3_column_int(st, 46) != 0;
}

/* The row that best_take() of daemon/job/best.h chooses. */
#define BEST_SELECT                                                                                                           \
    "SELECT 'best', metric, value, step FROM eval WHERE job=?1 AND metric IN ('AP', 'mAP', 'abs_rel') AND value IS NOT NULL " \
    "ORDER BY instr('AP mAP abs_rel', metric), iif(metric='abs_rel', value, -value), step LIMIT 1"

/* Rows of the splits train and val, then perhaps the row of the best validation. */
static int prepare_losses(sqlite3 *db, sqlite3_stmt **ret, struct err *err)
{
    return reader_prepare(db,
                          "SELECT * FROM (SELECT split, term, value, 0 FROM loss_latest WHERE job=?1 ORDER BY split, term LIMIT 512) "
                          "UNION ALL SELECT * FROM (" BEST_SELECT ")",
                          ret, err);
}

static void add_best(sqlite3_stmt *st, struct text *out)
{
    text_add(out, ",\"best\":{\"metric\":");
    text_json(out, column(st, 1));
    text_add(out, ",\"value\":");
    text_real(out, sqlite3_column_double(st, 2));
    text_addf(out, ",\"step\":%lld}", (long long)sqlite3_column_int64(st, 3));
}

/* Uses a statement from prepare_losses() for many jobs: preparing it takes longer than running it. */
static int add_losses(sqlite3 *db, sqlite3_stmt *st, int64_t id, struct text *out, struct err *err)
{
    const char *open = NULL;
    int rc;

    sqlite3_bind_int64(st, 1, id);
    text_add(out, "{\"train\":{");
    while ((rc = reader_step(db, st, err)) == 1 && strcmp(column(st, 0), "best") != 0) {
        bool val = strcmp(column(st, 0), "val") == 0;

        if (val && (!open || strcmp(open, "val") != 0))
            text_add(out, "},\"val\":{");
        else if (open)
            text_add(out, ",");
        open = val ? "val" : "train";
        text_json(out, column(st, 1));
        text_add(out, ":");
        if (sqlite3_column_type(st, 2) == SQLITE_NULL)
            text_add(out, "null");
        else
            text_real(out, sqlite3_column_double(st, 2));
    }
    text_add(out, open && strcmp(open, "val") == 0 ? "}" : "},\"val\":{}");
    if (rc == 1)
        add_best(st, out);
    text_add(out, "}");
    sqlite3_reset(st);
    return rc < 0 ? rc : 0;
}

static int losses_of(sqlite3 *db, int64_t id, struct text *out, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare_losses(db, &st, err);

    if (rc == 0)
        rc = add_losses(db, st, id, out, err);
    sqlite3_finalize(st);
    return rc;
}

/* ---- queries ---- */

static int each_job(sqlite3 *db, sqlite3_stmt *st, void (*each)(void *arg, const struct job_row *row), void *arg, struct err *err)
{
    struct job_row row;
    int rc;

    while ((rc = reader_step(db, st, err)) == 1) {
        read_row(st, &row);
        each(arg, &row);
    }
    return rc;
}

int store_load_jobs(struct store *s, int recent, void (*each)(void *arg, const struct job_row *row), void *arg, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc =
        reader_prepare(db,
                       JOB_SELECT "WHERE id IN (SELECT id FROM jobs WHERE state IN ('queued', 'starting', 'running', 'stopping', 'paused') "
                                  "UNION SELECT after FROM jobs WHERE state IN ('queued', 'paused') AND after<>0 "
                                  "UNION SELECT id FROM (SELECT id FROM jobs ORDER BY id DESC LIMIT ?1)) ORDER BY id DESC",
                       &st, err);

    if (rc == 0) {
        sqlite3_bind_int(st, 1, recent);
        rc = each_job(db, st, each, arg, err);
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

int store_ended_jobs(struct store *s, const struct store_ended_query *q, void (*each)(void *arg, const struct job_row *row), void *arg,
                     struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc = reader_prepare(
        db,
        JOB_SELECT
        "WHERE id>?1 AND state IN ('completed', 'failed', 'cancelled') AND iif(?7>0, ended_running<?7, ended<?2) AND (?3<0 OR uid=?3) "
        "AND (?4='' OR user=?4) AND (cleared & ?6)=0 ORDER BY id LIMIT ?5",
        &st, err);

    if (rc == 0) {
        sqlite3_bind_int64(st, 1, q->after);
        sqlite3_bind_double(st, 2, q->before);
        sqlite3_bind_int64(st, 3, q->uid);
        sqlite3_bind_text(st, 4, q->user, -1, SQLITE_STATIC);
        sqlite3_bind_int64(st, 5, q->limit);
        sqlite3_bind_int(st, 6, q->not_cleared);
        sqlite3_bind_double(st, 7, q->running);
        rc = each_job(db, st, each, arg, err);
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

/* One statement for each case: an optional condition would keep SQLite from using an index. */
static const char *const list_all = JOB_SELECT "WHERE id<?1 ORDER BY id DESC LIMIT ?2";
static const char *const list_state = JOB_SELECT "WHERE state=?3 AND id<?1 ORDER BY id DESC LIMIT ?2";
static const char *const list_filtered = JOB_SELECT
    "WHERE id<?1 AND (?3='' OR state=?3) AND (?4<0 OR uid=?4) AND (?5='' OR user=?5) AND (?6='' OR name GLOB ?6) AND submitted>=?7 "
    "AND (?8='' OR instr(',' || tags || ',', ',' || ?8 || ',')>0) "
    "ORDER BY id DESC LIMIT ?2";

static bool is_by_state(const struct store_job_filter *f)
{
    return f->uid < 0 && !f->user[0] && !f->name[0] && f->since == 0 && !f->tag[0];
}

bool store_filter_takes(const struct store_job_filter *f, const struct job_row *row)
{
    return (f->state < 0 || f->state == (int)row->state) && (f->uid < 0 || f->uid == row->uid) &&
           (!f->user[0] || strcmp(f->user, row->user) == 0) && (!f->name[0] || sqlite3_strglob(f->name, row->name) == 0) &&
           row->submitted >= f->since && (!f->tag[0] || label_has(row->tags, f->tag));
}

static void bind_filter(sqlite3_stmt *st, const struct store_page *page, const struct store_job_filter *f)
{
    sqlite3_bind_int64(st, 1, page->cursor ? page->cursor : INT64_MAX);
    sqlite3_bind_int64(st, 2, page->limit);
    if (sqlite3_bind_parameter_count(st) > 2)
        sqlite3_bind_text(st, 3, f->state < 0 ? "" : job_state_name((enum job_state)f->state), -1, SQLITE_STATIC);
    if (sqlite3_bind_parameter_count(st) == 3)
        return;
    sqlite3_bind_int64(st, 4, f->uid);
    sqlite3_bind_text(st, 5, f->user, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 6, f->name, -1, SQLITE_STATIC);
    sqlite3_bind_double(st, 7, f->since);
    sqlite3_bind_text(st, 8, f->tag, -1, SQLITE_STATIC);
}

int store_list_jobs(struct store *s, const struct store_page *page, const struct store_job_filter *f, store_job_fn *each, void *arg,
                    struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL, *losses_st = NULL;
    struct job_row row;
    int rc = reader_prepare(db, !is_by_state(f) ? list_filtered : f->state < 0 ? list_all : list_state, &st, err);

    if (rc == 0)
        rc = prepare_losses(db, &losses_st, err);
    if (rc == 0) {
        bind_filter(st, page, f);
        while ((rc = reader_step(db, st, err)) == 1) {
            struct text losses = { 0 };

            read_row(st, &row);
            rc = add_losses(db, losses_st, row.id, &losses, err);
            if (rc == 0 && !losses.failed)
                each(arg, &row, losses.p);
            text_free(&losses);
            if (rc < 0)
                break;
        }
    }
    sqlite3_finalize(losses_st);
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

static int no_such_job(int64_t id, struct err *err)
{
    return err_field(err, ERR_NOTFOUND, "id", "no job %lld", (long long)id);
}

int store_get_job(struct store *s, int64_t id, struct job_row *ret, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc = reader_prepare(db, JOB_SELECT "WHERE id=?1", &st, err);

    if (rc == 0) {
        sqlite3_bind_int64(st, 1, id);
        rc = reader_step(db, st, err);
        if (rc == 1)
            read_row(st, ret);
        rc = rc == 1 ? 0 : rc == 0 ? no_such_job(id, err) : rc;
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

/* Reads one text by one parameter. *ret stays NULL if there is no row. */
static int one_text(struct store *s, const char *sql, int64_t id, const char *key, char **ret, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc = reader_prepare(db, sql, &st, err);

    if (rc == 0) {
        if (key)
            sqlite3_bind_text(st, 1, key, -1, SQLITE_STATIC);
        else
            sqlite3_bind_int64(st, 1, id);
        rc = reader_step(db, st, err);
        if (rc == 1) {
            *ret = strdup(column(st, 0));
            rc = *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
        }
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

int store_get_spec(struct store *s, int64_t id, char **ret, struct err *err)
{
    int rc;

    *ret = NULL;
    rc = one_text(s, "SELECT spec FROM specs WHERE job=?1", id, NULL, ret, err);
    return rc == 0 && !*ret ? no_such_job(id, err) : rc;
}

int store_each_user(struct store *s, int64_t job_max, int64_t more, void (*each)(void *arg, uint32_t uid, int64_t bytes), void *arg,
                    struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st = NULL;
    int rc = reader_prepare(db, "SELECT uid, sum(?2 + CASE WHEN ?1>0 THEN min(reported, ?1) ELSE reported END) FROM jobs GROUP BY uid", &st,
                            err);

    if (rc == 0) {
        sqlite3_bind_int64(st, 1, job_max);
        sqlite3_bind_int64(st, 2, more);
    }
    while (rc == 0 && (rc = reader_step(db, st, err)) == 1) {
        each(arg, (uint32_t)sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1));
        rc = 0;
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

int store_get_setting(struct store *s, const char *key, char *ret, size_t size, struct err *err)
{
    char *value = NULL;
    int rc = one_text(s, "SELECT value FROM meta WHERE key=?1", 0, key, &value, err);

    snprintf(ret, size, "%s", value ? value : "");
    free(value);
    return rc;
}

static int one_number(struct store *s, const char *query, int64_t id, int64_t *ret, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st;
    int rc = reader_prepare(db, query, &st, err);

    if (rc >= 0) {
        sqlite3_bind_int64(st, 1, id);
        rc = reader_step(db, st, err);
    }
    if (rc == 1)
        *ret = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc < 0 ? rc : 0;
}

int store_next_removed(struct store *s, int64_t after, struct job_row *ret, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st;
    int rc = reader_prepare(db, "SELECT job, submitted, attempt FROM removed WHERE pending AND job>?1 ORDER BY job LIMIT 1", &st, err);

    *ret = (struct job_row){ 0 };
    if (rc >= 0) {
        sqlite3_bind_int64(st, 1, after);
        rc = reader_step(db, st, err);
    }
    if (rc == 1)
        *ret = (struct job_row){ .id = sqlite3_column_int64(st, 0),
                                 .submitted = sqlite3_column_double(st, 1),
                                 .attempt = sqlite3_column_int(st, 2) };
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc < 0 ? rc : 0;
}

int store_newest_checkpoint(struct store *s, int64_t id, int64_t *ret_step, struct err *err)
{
    return one_number(s, "SELECT max(step) FROM checkpoints WHERE job=?1", id, ret_step, err);
}

int store_newest_attempt(struct store *s, int64_t id, int64_t *ret, struct err *err)
{
    return one_number(s, "SELECT max(attempt) FROM attempts WHERE job=?1", id, ret, err);
}

int store_usage_count(struct store *s, int64_t id, int64_t *ret, struct err *err)
{
    return one_number(s, "SELECT count(*) FROM (SELECT 1 FROM usage WHERE job=?1 LIMIT 1000)", id, ret, err);
}

int store_best_checkpoint(struct store *s, int64_t id, int64_t *ret_step, struct err *err)
{
    return one_number(
        s, "SELECT coalesce((SELECT max(step) FROM checkpoints WHERE job=?1 AND best), (SELECT max(step) FROM checkpoints WHERE job=?1))",
        id, ret_step, err);
}

int store_load_gpus(struct store *s, void (*each)(void *arg, const struct store_gpu *gpu), void *arg, struct err *err)
{
    sqlite3 *db = reader_take(s);
    sqlite3_stmt *st;
    int rc = reader_prepare(db, "SELECT uuid, name, quarantine, memory_bytes, ecc_errors, quarantined FROM gpus", &st, err);

    while (rc >= 0 && (rc = reader_step(db, st, err)) == 1) {
        struct store_gpu gpu = { .memory_bytes = sqlite3_column_int64(st, 3),
                                 .ecc_errors = sqlite3_column_int64(st, 4),
                                 .quarantined = sqlite3_column_double(st, 5) };

        snprintf(gpu.uuid, sizeof gpu.uuid, "%s", column(st, 0));
        snprintf(gpu.name, sizeof gpu.name, "%s", column(st, 1));
        snprintf(gpu.quarantine, sizeof gpu.quarantine, "%s", column(st, 2));
        each(arg, &gpu);
    }
    sqlite3_finalize(st);
    reader_give(s, db);
    return rc;
}

int store_losses(struct store *s, int64_t id, struct text *out, struct err *err)
{
    sqlite3 *db = reader_take(s);
    int rc = losses_of(db, id, out, err);

    reader_give(s, db);
    return rc;
}
