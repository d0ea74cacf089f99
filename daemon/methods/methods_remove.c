/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_remove.c - job.rm and job.prune: removal of jobs
 * that have ended. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/launch/launch.h"
#include "daemon/methods/methods.h"
#include "daemon/run/removal.h"
#include "daemon/store/store.h"
#include "proto/err.h"

enum { PRUNE_DEFAULT = 100, PRUNE_MAX = 100, NAME_ROOM = 48 };

static int check_owner(const struct request *rq, const struct job_row *row, struct err *err)
{
    if (rq->caller.admin || rq->caller.uid == row->uid)
        return 0;
    return err_field(err, ERR_DENIED, "id", "job %lld belongs to %s", (long long)row->id, row->user);
}

/* The owner's name is in the job's row. Another user's name may have to come over a network, so the uid is written
 * instead. */
static void name_caller(const struct request *rq, const struct job_row *row, char ret[NAME_ROOM])
{
    if (rq->caller.uid == row->uid)
        snprintf(ret, NAME_ROOM, "%s", row->user);
    else
        snprintf(ret, NAME_ROOM, "the admin with uid %u", (unsigned)rq->caller.uid);
}

/* ---- rm ---- */

struct going {
    struct request *rq;
    int64_t id;
    struct job_row row;
    int rc;
    struct err err;
};

static void gone(void *arg, int rc, int64_t id, const struct err *err)
{
    struct request *rq = arg;

    (void)id;
    if (rc == 0)
        rq->result = json_pack("{s:s}", "state", "removed");
    request_done(rq, rc, err);
}

static int begin(struct request *rq, const struct job_row *row, struct err *err)
{
    char by[NAME_ROOM];
    int rc = check_owner(rq, row, err);

    name_caller(rq, row, by);
    return rc < 0 ? rc : removal_begin(&rq->d->removals, row, by, gone, rq, err);
}

static void going_work(void *arg)
{
    struct going *g = arg;

    g->rc = store_get_job(g->rq->d->store, g->id, &g->row, &g->err);
}

static void going_after(void *arg)
{
    struct going *g = arg;

    if (g->rc == 0)
        g->rc = begin(g->rq, &g->row, &g->err);
    if (g->rc < 0)
        request_done(g->rq, g->rc, &g->err);
    free(g);
}

int do_job_rm(struct request *rq, struct err *err)
{
    struct going *g;
    struct job *j;
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    if (rc < 0)
        return rc;
    j = jobs_find(&rq->d->jobs, id);
    if (j) {
        rc = begin(rq, &j->row, err);
        return rc < 0 ? rc : REQUEST_LATER;
    }
    g = calloc(1, sizeof *g);
    if (!g)
        return err_set(err, -ENOMEM, "out of memory");
    g->rq = rq;
    g->id = id;
    rc = request_work(rq, going_work, going_after, g, err);
    if (rc < 0)
        free(g);
    return rc;
}

/* ---- prune ---- */

struct prune;
struct pruned {
    struct prune *all;
    struct job_row row;
    int rc;
    struct err err;
};

struct prune {
    struct request *rq;
    struct store_ended_query query;
    bool keep_best, dry_run;
    struct pruned *jobs; /* room for query.limit */
    int count, waiting;
    int rc;
    struct err err;
};

static void prune_free(struct prune *p)
{
    free(p->jobs);
    free(p);
}

static void found(void *arg, const struct job_row *row)
{
    struct prune *p = arg;

    p->jobs[p->count++] = (struct pruned){ .all = p, .row = *row };
}

/* The job stays, with its rows and its best checkpoint. If no validation has told which one is best, the newest
 * stays. */
static void thin(struct pruned *it)
{
    const struct daemon *d = it->all->rq->d;
    int64_t best = 0;

    it->rc = store_best_checkpoint(d->store, it->row.id, &best, &it->err);
    if (it->rc == 0)
        it->rc = launch_thin_folder(d->jobs_dir, &it->row, store_id(d->store), best, &it->err);
}

static void prune_work(void *arg)
{
    struct prune *p = arg;

    p->rc = request_wanted(p->rq, &p->err);
    if (p->rc == 0)
        p->rc = store_ended_jobs(p->rq->d->store, &p->query, found, p, &p->err);
    for (int i = 0; p->rc == 0 && p->keep_best && !p->dry_run && i < p->count; i++)
        thin(&p->jobs[i]);
}

static json_t *answer(const struct prune *p)
{
    json_t *jobs = json_array(), *refused = json_array();

    for (int i = 0; i < p->count; i++) {
        const struct pruned *it = &p->jobs[i];

        if (it->rc < 0)
            json_array_append_new(refused, json_pack("{s:I, s:s}", "id", (json_int_t)it->row.id, "message", it->err.msg));
        else
            json_array_append_new(jobs, json_pack("{s:I, s:s, s:s, s:s, s:f}", "id", (json_int_t)it->row.id, "name", it->row.name, "user",
                                                  it->row.user, "state", job_state_name(it->row.state), "ended", it->row.ended));
    }
    return json_pack("{s:o, s:o, s:o}", "jobs", jobs, "refused", refused, "cursor",
                     p->count == p->query.limit ? json_integer(p->jobs[p->count - 1].row.id) : json_null());
}

static void answer_if_done(struct prune *p)
{
    if (p->waiting > 0)
        return;
    if (p->rc == 0) {
        p->rq->result = answer(p);
        p->rc = p->rq->result ? 0 : err_set(&p->err, -ENOMEM, "out of memory");
    }
    request_done(p->rq, p->rc, &p->err);
    prune_free(p);
}

static void one_gone(void *arg, int rc, int64_t id, const struct err *err)
{
    struct pruned *it = arg;

    (void)id;
    it->rc = rc;
    if (rc < 0)
        it->err = *err;
    it->all->waiting--;
    answer_if_done(it->all);
}

static void remove_one(struct pruned *it)
{
    struct prune *p = it->all;
    char by[NAME_ROOM];

    name_caller(p->rq, &it->row, by);
    p->waiting++; /* counted first: a lack of memory is answered at once */
    it->rc = removal_begin(&p->rq->d->removals, &it->row, by, one_gone, it, &it->err);
    p->waiting -= it->rc < 0;
}

static void prune_after(void *arg)
{
    struct prune *p = arg;

    p->waiting = 1; /* for this function */
    for (int i = 0; p->rc == 0 && !p->keep_best && !p->dry_run && i < p->count; i++)
        remove_one(&p->jobs[i]);
    p->waiting--;
    answer_if_done(p);
}

static int start_prune(struct request *rq, const struct prune *what, struct err *err)
{
    struct prune *p = malloc(sizeof *p);
    int rc;

    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    *p = *what;
    p->jobs = calloc((size_t)p->query.limit, sizeof *p->jobs);
    rc = p->jobs ? request_work(rq, prune_work, prune_after, p, err) : err_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        prune_free(p);
    return rc;
}

/* Only admins may prune jobs of other users; any other caller prunes its own jobs. */
int do_job_prune(struct request *rq, struct err *err)
{
    struct prune p = { .rq = rq };
    json_int_t limit = PRUNE_DEFAULT, cursor = 0;
    const char *user = NULL;
    double older;
    int keep_best = 0, dry_run = 0;
    int rc = params_unpack(rq, err, "{s:F, s?b, s?b, s?s, s?I, s?I}", "older", &older, "keep_best", &keep_best, "dry_run", &dry_run, "user",
                           &user, "limit", &limit, "cursor", &cursor);

    if (rc < 0)
        return rc;
    if (!(older >= 0))
        return err_field(err, ERR_INPUT, "older", "older: must be a number of seconds");
    if (limit < 1 || limit > PRUNE_MAX)
        return err_field(err, ERR_INPUT, "limit", "limit: must be 1 to %d, is %lld", PRUNE_MAX, (long long)limit);
    if (user && strlen(user) > JOB_USER_MAX)
        return err_field(err, ERR_INPUT, "user", "user: no name has more than %d bytes", JOB_USER_MAX);
    p.query = (struct store_ended_query){ .after = cursor, .before = now_s() - older, .limit = limit };
    p.query.uid = rq->caller.admin ? -1 : (int64_t)rq->caller.uid;
    snprintf(p.query.user, sizeof p.query.user, "%s", user ? user : "");
    p.keep_best = keep_best != 0;
    p.dry_run = dry_run != 0;
    return start_prune(rq, &p, err);
}
