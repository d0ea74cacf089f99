/* SPDX-License-Identifier: Apache-2.0 */ /* client/model/export.c - export: jobs with all their rows as a database of
 * the user's own, under the names that detd.db has; or a job's weights. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/base/command.h"
#include "client/base/curve.h"
#include "client/model/export_weights.h"
#include "client/base/print.h"
#include "client/base/run.h"
#include "proto/host/room.h"

/* Columns are members of detd's answers; `job` is the job's id. */
static const struct kind {
    const char *name;
    const char *columns[25];
} kinds[] = {
    { "jobs", { "id",      "name",      "user",    "state", "reason", "tier",  "device",       "ranks",       "ranks_per_gpu",
                "threads", "priority",  "attempt", "gpus",  "step",   "steps", "images_per_s", "cpu_seconds", "seconds",
                "max_rss", "submitted", "started", "ended", "dir",    "spec" } },
    { "attempts", { "job", "attempt", "node", "resume_step", "started", "ended", "outcome", "reason", "identity" } },
    { "checkpoints", { "job", "step", "path", "bytes", "val_loss", "best", "time" } },
    { "tiers", { "job", "step", "tier" } },
    { "loss", { "job", "split", "term", "step", "epoch", "value", "num", "den", "tier", "time" } },
    { "eval", { "job", "metric", "step", "value", "time" } },
    { "events", { "id", "job", "time", "level", "kind", "text" } },
    { "usage", { "job", "time", "cpu", "memory", "gpu", "gpu_memory" } },
};
enum { JOBS, ATTEMPTS, CHECKPOINTS, TIERS, LOSS, EVAL, EVENTS, USAGE, KINDS };
_Static_assert(sizeof kinds / sizeof *kinds == KINDS, "a name for each");

static const char views[] =
    "CREATE INDEX loss_job ON loss (job, split, term, step);"
    "CREATE VIEW loss_latest AS SELECT * FROM loss l WHERE step = (SELECT max(step) FROM loss WHERE job=l.job AND "
    "split=l.split AND term=l.term);"
    "CREATE VIEW loss_wide AS SELECT job, step, max(CASE split WHEN 'train' THEN value END) AS train_total,"
    " max(CASE split WHEN 'val' THEN value END) AS val_total FROM loss WHERE term = 'total' GROUP BY job, step;"
    "CREATE VIEW evaluations AS SELECT id AS by, json_extract(spec, '$.errand.job') AS job, json_extract(spec, '$.errand.step') AS step,"
    " json_extract(spec, '$.errand.set') AS dataset FROM jobs WHERE state = 'completed' AND json_extract(spec, '$.errand.job') IS NOT NULL;"
    "CREATE VIEW eval_on AS WITH newest AS (SELECT max(by) AS by, job, dataset, step FROM evaluations"
    " GROUP BY job, dataset, step)"
    " SELECT n.job, n.dataset, n.step, e.metric, e.value, e.time, n.by FROM newest n JOIN eval e ON e.job = n.by"
    " UNION ALL SELECT n.job, n.dataset, n.step, 'loss/' || l.term, l.value, l.time, n.by"
    " FROM newest n JOIN loss l ON l.job = n.by AND l.split = 'val';"
    "COMMIT";

enum { LISTED_MAX = 1000 }; /* most rows of a list in job.get */

struct copy {
    struct context *ctx;
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *insert[KINDS];
    int64_t job, jobs, rows, gone;
};

static int refuse(const struct copy *c)
{
    int last = errno, code = sqlite3_errcode(c->db), why = sqlite3_system_errno(c->db);
    const char *lacks = code == SQLITE_FULL ? room_lacks(ENOSPC) : code == SQLITE_IOERR ? room_lacks(why ? why : last) : NULL;

    fprintf(stderr, "detctl export: write '%s': %s\n", c->path, lacks ? lacks : sqlite3_errmsg(c->db));
    return CODE_REFUSED;
}

/* ---- the file ---- */

static int make_table(struct copy *c, const struct kind *kind, sqlite3_stmt **ret)
{
    char columns[400] = "", marks[64] = "", sql[600];

    for (int i = 0; kind->columns[i]; i++) {
        size_t len = strlen(columns);

        snprintf(columns + len, sizeof columns - len, "%s%s", i ? ", " : "", kind->columns[i]);
        len = strlen(marks);
        snprintf(marks + len, sizeof marks - len, "%s?", i ? "," : "");
    }
    snprintf(sql, sizeof sql, "CREATE TABLE %s (%s)", kind->name, columns);
    if (sqlite3_exec(c->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return refuse(c);
    snprintf(sql, sizeof sql, "INSERT INTO %s VALUES (%s)", kind->name, marks);
    return sqlite3_prepare_v2(c->db, sql, -1, ret, NULL) == SQLITE_OK ? 0 : refuse(c);
}

static int open_copy(struct copy *c)
{
    int fd = open(c->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600), rc = 0;

    if (fd < 0) {
        fprintf(stderr, "detctl export: make '%s': %s\n", c->path, strerror(errno));
        return CODE_REFUSED;
    }
    close(fd);
    if (sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_exec(c->db, "PRAGMA journal_mode=MEMORY; BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        rc = refuse(c);
    for (int k = 0; k < KINDS && rc == 0; k++)
        rc = make_table(c, &kinds[k], &c->insert[k]);
    return rc;
}

/* Leaves a whole file, or no file. */
static int close_copy(struct copy *c, int rc)
{
    if (rc == 0 && sqlite3_exec(c->db, views, NULL, NULL, NULL) != SQLITE_OK)
        rc = refuse(c);
    for (int k = 0; k < KINDS; k++)
        sqlite3_finalize(c->insert[k]);
    sqlite3_close(c->db);
    if (rc)
        unlink(c->path);
    return rc;
}

static void bind(sqlite3_stmt *st, int i, const json_t *value)
{
    if (json_is_integer(value) || json_is_boolean(value))
        sqlite3_bind_int64(st, i, json_is_integer(value) ? json_integer_value(value) : json_is_true(value));
    else if (json_is_real(value))
        sqlite3_bind_double(st, i, json_real_value(value));
    else if (json_is_string(value))
        sqlite3_bind_text(st, i, json_string_value(value), -1, SQLITE_TRANSIENT);
    else if (json_is_object(value) || json_is_array(value))
        sqlite3_bind_text(st, i, json_dumps(value, JSON_COMPACT), -1, free);
    else
        sqlite3_bind_null(st, i);
}

static int add_row(struct copy *c, int kind, const json_t *row)
{
    sqlite3_stmt *st = c->insert[kind];

    for (int i = 0; kinds[kind].columns[i]; i++) {
        const char *column = kinds[kind].columns[i];

        if (strcmp(column, "job") == 0)
            sqlite3_bind_int64(st, i + 1, c->job);
        else
            bind(st, i + 1, json_object_get(row, column));
    }
    sqlite3_step(st);
    c->rows++;
    return sqlite3_reset(st) == SQLITE_OK ? 0 : refuse(c);
}

static int add_rows(struct copy *c, int kind, const json_t *rows)
{
    json_t *row;
    size_t i;
    int rc = 0;

    json_array_foreach (rows, i, row) {
        if (rc == 0)
            rc = add_row(c, kind, row);
    }
    if (rc == 0 && i >= LISTED_MAX && kind >= ATTEMPTS && kind <= TIERS)
        fprintf(stderr, "detctl export: of job %lld detd tells %zu %s, the most of a list; there may be more\n", (long long)c->job, i,
                kinds[kind].name);
    return rc;
}

/* ---- the jobs ---- */

static int add_loss(void *arg, const json_t *row)
{
    return add_row(arg, LOSS, row);
}

/* Adds every page of a list of the job. The rows are the member `name`. */
static int add_pages(struct copy *c, int kind, const char *method, const char *name)
{
    json_t *cursor = NULL, *result;
    int rc;

    do {
        if ((rc = call_page(c->ctx, method, json_pack("{s:I}", "id", (json_int_t)c->job), &cursor, &result)))
            return rc;
        rc = add_rows(c, kind, json_object_get(result, name));
        json_decref(result);
    } while (rc == 0 && cursor);
    json_decref(cursor);
    return rc;
}

static int add_job(struct copy *c, int64_t id)
{
    const struct curve_query all = { .job = id };
    json_t *job = NULL;
    int rc = call(c->ctx, "job.get", json_pack("{s:I}", "id", (json_int_t)id), &job);

    if (rc == CODE_REFUSED) { /* the job is gone, which was told: the others are added */
        c->gone++;
        return 0;
    }
    c->job = id;
    c->jobs++;
    run_hide_code(json_object_get(job, "spec"));
    if (rc == 0)
        rc = add_row(c, JOBS, job);
    if (rc == 0)
        rc = add_rows(c, ATTEMPTS, json_object_get(job, "attempts"));
    if (rc == 0)
        rc = add_rows(c, CHECKPOINTS, json_object_get(job, "checkpoints"));
    if (rc == 0)
        rc = add_rows(c, TIERS, json_object_get(job, "tiers"));
    json_decref(job);
    if (rc == 0)
        rc = curve_rows(c->ctx, &all, add_loss, c);
    if (rc == 0)
        rc = add_pages(c, EVAL, "eval.query", "rows");
    if (rc == 0)
        rc = add_pages(c, EVENTS, "event.query", "events");
    return rc ? rc : add_pages(c, USAGE, "job.usage", "rows");
}

/* Adds the caller's own jobs, newest first, or all jobs. */
static int add_listed(struct copy *c, bool all)
{
    json_t *cursor = NULL, *job, *result;
    size_t i;
    int rc;

    do {
        if ((rc = call_page(c->ctx, "job.list", all ? json_object() : json_pack("{s:b}", "mine", true), &cursor, &result)))
            return rc;
        json_array_foreach (json_object_get(result, "jobs"), i, job) {
            if (rc == 0)
                rc = add_job(c, int_of(job, "id"));
        }
        json_decref(result);
    } while (rc == 0 && cursor);
    json_decref(cursor);
    return rc;
}

int command_export(struct context *ctx, int argc, char **argv)
{
    static const struct option options[] = { { "sqlite", required_argument, NULL, 's' },     { "all", no_argument, NULL, 'a' },
                                             { "format", required_argument, NULL, 'f' },     { "out", required_argument, NULL, 'o' },
                                             { "checkpoint", required_argument, NULL, 'k' }, { 0 } };
    struct copy c = { .ctx = ctx };
    struct export_weights w = { 0 };
    bool all = false;
    int64_t id;
    int o, rc;

    while ((o = next_option(argc, argv, "f:o:", options)) != -1) {
        if (o == '?')
            return CODE_USAGE;
        all = all || o == 'a';
        if (o != 'a')
            *(o == 's' ? &c.path : o == 'f' ? &w.form : o == 'o' ? &w.out : &w.checkpoint) = optarg;
    }
    if (w.form || w.out || w.checkpoint) {
        if (!w.form || !w.out || c.path || all || argc - optind != 1)
            return misuse(ctx, "weights are exported of one job, with -f FORM and -o FILE");
        return (rc = take_id(ctx, argv[optind], &id)) ? rc : export_weights(ctx, id, &w);
    }
    if (!c.path)
        return misuse(ctx, "either -f FORM and -o FILE, or --sqlite FILE is missing");
    if (all && optind < argc)
        return misuse(ctx, "either --all or ids of jobs");
    for (int i = optind; i < argc; i++)
        if (take_id(ctx, argv[i], &id))
            return CODE_USAGE;
    catch_interrupt();
    if ((rc = open_copy(&c)) && !c.db)
        return rc;
    if (rc == 0 && optind == argc)
        rc = add_listed(&c, all);
    for (int i = optind; i < argc && rc == 0; i++)
        if ((rc = take_id(ctx, argv[i], &id)) == 0)
            rc = add_job(&c, id);
    if (rc == 0 && c.gone > 0 && c.jobs == 0)
        rc = CODE_REFUSED; /* no job was added: the file is not kept */
    rc = close_copy(&c, rc);
    if (rc == 0)
        printf("%s: %lld jobs, %lld rows\n", c.path, (long long)c.jobs, (long long)c.rows);
    return rc == 0 && c.gone > 0 ? CODE_REFUSED : rc;
}
