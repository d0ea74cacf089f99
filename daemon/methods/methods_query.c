/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_query.c - the methods that read the store: losses,
 * evaluation, events, tiers, logs, why. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/base/clock.h"
#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/methods/methods.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/clean.h"
#include "proto/err.h"
#include "proto/tier.h"

enum { ROWS_DEFAULT = 1000, ROWS_MAX = 5000, POINTS_MAX = 5000, EVENTS_DEFAULT = 100, USAGE_HOURS_MAX = 1000000 };

struct query {
    struct request *rq;
    int (*run)(struct query *q, struct err *err); /* runs on a thread of the pool */
    struct store_loss_query loss;                 /* strings are borrowed from the request */
    struct store_eval_query eval;                 /* strings are borrowed, too */
    struct store_page page;
    int64_t id;
    bool known; /* the job is in memory, so it exists */
    struct job_row row;
    struct text out;
    int rc;
    struct err err;
};

static void query_work(void *arg)
{
    struct query *q = arg;

    q->rc = request_wanted(q->rq, &q->err);
    if (q->rc == 0 && q->id && !q->known)
        q->rc = store_get_job(q->rq->d->store, q->id, &q->row, &q->err);
    if (q->rc == 0)
        q->rc = q->run(q, &q->err);
}

static void query_after(void *arg)
{
    struct query *q = arg;

    if (q->rc == 0)
        q->rc = request_take(q->rq, &q->out, &q->err);
    request_done(q->rq, q->rc, &q->err);
    text_free(&q->out);
    free(q);
}

static int start(struct request *rq, const struct query *filled, struct err *err)
{
    struct query *q = malloc(sizeof *q);
    const struct job *j = jobs_find(&rq->d->jobs, filled->id);
    int rc;

    if (!q)
        return err_set(err, -ENOMEM, "out of memory");
    *q = *filled;
    q->rq = rq;
    q->known = j != NULL;
    if (j)
        q->row = j->row;
    rc = request_work(rq, query_work, query_after, q, err);
    if (rc < 0)
        free(q);
    return rc;
}

static int check_limit(json_int_t limit, int max, const char *field, struct err *err)
{
    if (limit >= 1 && limit <= max)
        return 0;
    return err_field(err, ERR_INPUT, field, "%s: must be 1 to %d, is %lld", field, max, (long long)limit);
}

/* ---- losses ---- */

static int run_loss_rows(struct query *q, struct err *err)
{
    return store_loss_rows(q->rq->d->store, &q->loss, &q->out, err);
}

int do_loss_query(struct request *rq, struct err *err)
{
    json_int_t id, from = 0, to = INT64_MAX, points = 0, limit = -1;
    struct query q = { .run = run_loss_rows };
    int rc = params_unpack(rq, err, "{s:I, s?s, s?s, s?I, s?I, s?I, s?I, s?s}", "id", &id, "split", &q.loss.split, "term", &q.loss.term,
                           "from", &from, "to", &to, "points", &points, "limit", &limit, "cursor", &q.loss.cursor);

    if (rc < 0)
        return rc;
    if (limit == -1)
        limit = points ? ROWS_MAX : ROWS_DEFAULT;
    rc = check_limit(limit, ROWS_MAX, "limit", err);
    if (rc == 0 && json_object_get(rq->params, "points"))
        rc = check_limit(points, POINTS_MAX, "points", err);
    if (rc == 0 && q.loss.split && strcmp(q.loss.split, "train") != 0 && strcmp(q.loss.split, "val") != 0)
        rc = err_field(err, ERR_INPUT, "split", "split: must be train or val, is '%.40s'", q.loss.split);
    if (rc < 0)
        return rc;
    q.id = q.loss.job = id;
    q.loss.from = from;
    q.loss.to = to;
    q.loss.points = points;
    q.loss.limit = limit;
    return start(rq, &q, err);
}

/* ---- evaluation, events ---- */

static int run_eval(struct query *q, struct err *err)
{
    return store_eval_rows(q->rq->d->store, &q->eval, &q->out, err);
}

int do_eval_query(struct request *rq, struct err *err)
{
    json_int_t id, limit = ROWS_DEFAULT;
    struct query q = { .run = run_eval };
    int rc = params_unpack(rq, err, "{s:I, s?s, s?s, s?I, s?s}", "id", &id, "metric", &q.eval.metric, "set", &q.eval.dataset, "limit",
                           &limit, "cursor", &q.eval.cursor);

    if (rc == 0)
        rc = check_limit(limit, ROWS_MAX, "limit", err);
    if (rc < 0)
        return rc;
    q.id = q.eval.job = id;
    q.eval.limit = limit;
    return start(rq, &q, err);
}

static int start_page(struct request *rq, struct query *q, int64_t id, struct store_page page, struct err *err)
{
    int rc = check_limit(page.limit, ROWS_MAX, "limit", err);

    q->id = id;
    q->page = page;
    return rc < 0 ? rc : start(rq, q, err);
}

static int run_events(struct query *q, struct err *err)
{
    return store_events(q->rq->d->store, q->id, &q->page, &q->out, err);
}

int do_event_query(struct request *rq, struct err *err)
{
    json_int_t id = 0, limit = EVENTS_DEFAULT, cursor = 0;
    struct query q = { .run = run_events };
    int rc = params_unpack(rq, err, "{s?I, s?I, s?I}", "id", &id, "limit", &limit, "cursor", &cursor);

    return rc < 0 ? rc : start_page(rq, &q, id, (struct store_page){ limit, cursor }, err);
}

static int run_usage(struct query *q, struct err *err)
{
    return store_usage_rows(q->rq->d->store, q->id, &q->page, &q->out, err);
}

int do_job_usage(struct request *rq, struct err *err)
{
    json_int_t id, limit = ROWS_DEFAULT, cursor = 0;
    struct query q = { .run = run_usage };
    int rc = params_unpack(rq, err, "{s:I, s?I, s?I}", "id", &id, "limit", &limit, "cursor", &cursor);

    return rc < 0 ? rc : start_page(rq, &q, id, (struct store_page){ limit, cursor }, err);
}

static int run_user_usage(struct query *q, struct err *err)
{
    return store_user_usage(q->rq->d->store, q->page.cursor, &q->out, err);
}

/* Hours are those for which detd has run, as in the table. */
int do_user_usage(struct request *rq, struct err *err)
{
    json_int_t hours = 0, now = (json_int_t)(rq->d->shares.at / 3600);
    struct query q = { .run = run_user_usage };
    int rc = params_unpack(rq, err, "{s?I}", "hours", &hours);

    if (rc == 0 && json_object_get(rq->params, "hours"))
        rc = check_limit(hours, USAGE_HOURS_MAX, "hours", err);
    if (rc < 0)
        return rc;
    q.page.cursor = hours > 0 ? now - hours + 1 : 0;
    return start(rq, &q, err);
}

/* ---- tiers ---- */

static int run_tiers(struct query *q, struct err *err)
{
    int rc;

    text_addf(&q->out, "{\"tier\":\"%s\",\"pending\":", tier_name(q->row.tier));
    text_json(&q->out, q->row.want_tier < 0 ? NULL : tier_name(q->row.want_tier));
    text_add(&q->out, ",\"history\":");
    rc = store_tiers(q->rq->d->store, q->id, &q->out, err);
    text_add(&q->out, "}");
    return rc;
}

int do_deterministic_get(struct request *rq, struct err *err)
{
    json_int_t id = 0;
    int rc = params_unpack(rq, err, "{s?I}", "id", &id);

    if (rc < 0)
        return rc;
    if (json_object_get(rq->params, "id"))
        return start(rq, &(struct query){ .run = run_tiers, .id = id }, err);
    rq->result = json_pack("{s:s}", "tier", tier_name(rq->d->tier));
    return 0;
}

/* ---- logs, why ---- */

/* Answers with paths only: detd opens no log for a client. The client reads the logs with its own rights. */
static int run_logs(struct query *q, struct err *err)
{
    char folder[CONFIG_PATH_MAX + 64], path[CONFIG_PATH_MAX + 128];

    (void)err;
    snprintf(folder, sizeof folder, "%s/%lld", q->rq->d->jobs_dir, (long long)q->id);
    text_add(&q->out, "{\"dir\":");
    text_json(&q->out, folder);
    text_add(&q->out, ",\"logs\":[");
    for (int r = 0; r < q->row.ranks; r++) {
        snprintf(path, sizeof path, "%s/log/rank-%d.log", folder, r);
        text_addf(&q->out, "%s{\"rank\":%d,\"path\":", r ? "," : "", r);
        text_json(&q->out, path);
        text_add(&q->out, "}");
    }
    snprintf(path, sizeof path, "%s/log/supervisor.log", folder);
    text_add(&q->out, "],\"supervisor\":");
    text_json(&q->out, path);
    text_add(&q->out, "}");
    return 0;
}

int do_job_logs(struct request *rq, struct err *err)
{
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    return rc < 0 ? rc : start(rq, &(struct query){ .run = run_logs, .id = id }, err);
}

static void why_text(const struct job_row *row, char *ret, size_t size)
{
    switch (row->state) {
    case JOB_STARTING:
        snprintf(ret, size, "has its slots; attempt %d is starting", row->attempt);
        break;
    case JOB_RUNNING:
        if (row->steps == 0 && row->kind == JOB_RUNS)
            snprintf(ret, size, "runs attempt %d, step %lld", row->attempt, (long long)row->step);
        else if (row->steps == 0)
            snprintf(ret, size, "runs attempt %d and evaluates", row->attempt);
        else
            snprintf(ret, size, "runs attempt %d, step %lld of %lld", row->attempt, (long long)row->step, (long long)row->steps);
        break;
    case JOB_STOPPING:
        snprintf(ret, size, "%s", row->want == JOB_WANT_CANCEL ? "was cancelled and is leaving" : "was paused and writes its checkpoint");
        break;
    case JOB_PAUSED:
        snprintf(ret, size, "was paused at step %lld; `detctl resume %lld` queues it again", (long long)row->step, (long long)row->id);
        break;
    case JOB_COMPLETED:
        if (row->step < row->steps && row->reason[0])
            snprintf(ret, size, "completed: %s", row->reason);
        else if (row->kind == JOB_RUNS)
            snprintf(ret, size, "completed");
        else if (row->steps == 0)
            snprintf(ret, size, "completed the evaluation");
        else
            snprintf(ret, size, "completed all %lld steps", (long long)row->steps);
        break;
    case JOB_FAILED:
        snprintf(ret, size,
                 "failed: %s; once the cause is mended, `detctl resume %lld` lets it go on, from its newest checkpoint if there is one",
                 row->reason[0] ? row->reason : "no reason is known", (long long)row->id);
        break;
    default:
        snprintf(ret, size, "%s%s%s", job_state_name(row->state), row->reason[0] ? ": " : "", row->reason);
    }
}

static int run_why_work(struct query *q, struct err *err)
{
    char text[JOB_REASON_MAX + 160];

    (void)err;
    why_text(&q->row, text, sizeof text);
    text_addf(&q->out, "{\"state\":\"%s\",\"text\":", job_state_name(q->row.state));
    text_json(&q->out, text);
    text_add(&q->out, ",\"expected\":null,\"place\":null}");
    return 0;
}

int do_job_why(struct request *rq, struct err *err)
{
    json_int_t id;
    char text[1500];
    const struct job *j;
    double wait_s;
    bool queued;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    if (rc < 0)
        return rc;
    j = jobs_find(&rq->d->jobs, id);
    if (!j || (j->row.state != JOB_QUEUED && !j->hidden_until && j->life.phase != LIFE_COMMITTING && !j->trouble[0] && !j->says[0] &&
               (!job_is_live(j->row.state) || !j->row.backfill)))
        return start(rq, &(struct query){ .run = run_why_work, .id = id }, err);
    run_why(&rq->d->runner, j, text, sizeof text);
    wait_s = run_expected_wait(&rq->d->runner, j);
    queued = j->row.state == JOB_QUEUED;
    rq->result = json_pack("{s:s, s:o, s:o, s:o}", "state", job_state_name(j->row.state), "text", clean_string(text), "expected",
                           isfinite(wait_s) ? json_real(now_s() + wait_s) : json_null(), "place",
                           queued ? json_integer(run_place(&rq->d->runner, j)) : json_null());
    return 0;
}
