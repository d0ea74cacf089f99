/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/methods/methods_reopen.c - a job that has ended is queued again.
 * job.extend: a completed job trains on as if it had been given so many steps at first. job.resume: a failed job
 * continues from its newest checkpoint. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/socket/conn.h"
#include "daemon/daemon.h"
#include "daemon/base/errand.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/jobs/place.h"
#include "daemon/methods/methods.h"
#include "daemon/store/store.h"
#include "daemon/base/text.h"
#include "proto/err.h"
#include "proto/host/sha256.h"
#include "proto/job/jobspec.h"

struct reopening {
    struct request *rq;
    int64_t id;
    int64_t steps; /* 0: a resume, which keeps the job's steps */
    bool already;  /* it was queued so before, and the reply was lost */
    struct job_row row;
    struct jobspec *was;
    json_t *losses;
    char *text;                       /* the spec with more steps; NULL: it stays */
    unsigned char hash[SHA256_BYTES]; /* of the text, for detd-launch */
    struct user_share *place;
    int64_t from; /* the checkpoint to continue from; 0: no checkpoint */
    int rc;
    struct err err;
};

static void reopening_free(struct reopening *x)
{
    place_give_back(x->place);
    jobspec_free(x->was);
    json_decref(x->losses);
    free(x->text);
    free(x);
}

static void finish(struct reopening *x, int rc, const struct err *err)
{
    request_granted(x->rq, rc, err);
    reopening_free(x);
}

/* ---- on a thread: reasons to refuse ---- */

static int check_owner(struct reopening *x)
{
    if (x->rq->caller.admin || x->rq->caller.uid == x->row.uid)
        return 0;
    return err_field(&x->err, ERR_DENIED, "id", "job %lld belongs to %s", (long long)x->row.id, x->row.user);
}

static int check_failed(struct reopening *x)
{
    const struct job_row *row = &x->row;

    x->already = !job_is_done(row->state);
    if (x->already || row->state == JOB_FAILED)
        return 0;
    return err_field(&x->err, ERR_STATE, "id", "job %lld is %s: resume is not possible", (long long)row->id, job_state_name(row->state));
}

static int check_completed(struct reopening *x)
{
    const struct job_row *row = &x->row;

    x->already = !job_is_done(row->state) && row->attempt > 0 && row->steps == x->steps;
    if (row->kind == JOB_RUNS)
        return err_field(&x->err, ERR_STATE, "id", "job %lld is a program", (long long)row->id);
    if (x->already || row->state == JOB_COMPLETED)
        return 0;
    return err_field(&x->err, ERR_STATE, "id", "job %lld is %s: only a completed one is given more steps%s", (long long)row->id,
                     job_state_name(row->state),
                     row->state == JOB_FAILED  ? "; `detctl resume` lets it go on, from its newest checkpoint if there is one"
                     : job_is_done(row->state) ? "; `detctl clone` queues its job file once more"
                                               : "");
}

static int read_spec(struct reopening *x)
{
    char *stored = NULL;
    json_t *root = NULL;
    int rc = store_get_spec(x->rq->d->store, x->id, &stored, &x->err);

    if (rc == 0) {
        root = json_loads(stored, 0, NULL);
        rc = root ? jobspec_extend(root, x->steps, &x->was, &x->err)
                  : err_set(&x->err, ERR_CORRUPT, "job %lld: its stored spec cannot be read", (long long)x->id);
    }
    x->text = rc == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    free(stored);
    if (x->text)
        sha256(x->text, strlen(x->text), x->hash);
    return rc == 0 && !x->text ? err_set(&x->err, -ENOMEM, "out of memory") : rc;
}

/* The job would end at once, or where it ended before, since its checkpoints hold the count of validations. */
static int check_stopped(struct reopening *x)
{
    const struct job_row *row = &x->row;

    if (x->was->train_stop_after <= 0 || row->step >= row->steps)
        return 0;
    return err_field(&x->err, ERR_STATE, "train.stop_after",
                     "job %lld cannot be given more steps: train.stop_after (%lld) ended it after step %lld of %lld, and would again; "
                     "`detctl clone %lld train.stop_after=0` trains anew without it",
                     (long long)row->id, (long long)x->was->train_stop_after, (long long)row->step, (long long)row->steps,
                     (long long)row->id);
}

static bool look_at_checkpoint(void *arg, int64_t step)
{
    struct reopening *x = arg;

    if (jobspec_on_the_way(x->was, step) && launch_has_checkpoint(x->rq->d->jobs_dir, &x->row, step))
        x->from = step;
    return x->from == 0;
}

static int find_checkpoint(struct reopening *x)
{
    struct err why;
    int rc = store_each_checkpoint(x->rq->d->store, x->id, look_at_checkpoint, x, &x->err);

    if (rc < 0 || x->from > 0)
        return rc;
    if (jobspec_on_the_way(x->was, x->was->train_steps))
        return err_field(
            &x->err, ERR_STATE, "id",
            "job %lld cannot be given more steps: no checkpoint of it is there; `detctl clone %lld train.steps=%lld` trains anew",
            (long long)x->id, (long long)x->id, (long long)x->steps);
    jobspec_not_on_the_way(x->was, &why);
    return err_field(&x->err, ERR_STATE, why.field,
                     "job %lld cannot be given more steps, %s, and no earlier checkpoint is there; "
                     "`detctl clone %lld train.steps=%lld` trains anew, and with model.init=job:%lld begins with its weights",
                     (long long)x->id, why.msg, (long long)x->id, (long long)x->steps, (long long)x->id);
}

static int read_losses(struct reopening *x)
{
    struct text t = { 0 };
    int rc = store_losses(x->rq->d->store, x->id, &t, &x->err);

    x->losses = rc == 0 && t.p ? json_loads(t.p, 0, NULL) : NULL;
    text_free(&t);
    return rc == 0 && !x->losses ? err_set(&x->err, -ENOMEM, "out of memory") : rc;
}

static int look_at_steps(struct reopening *x)
{
    int rc = read_spec(x);

    if (rc == 0)
        rc = check_stopped(x);
    return rc < 0 ? rc : find_checkpoint(x);
}

static void work(void *arg)
{
    struct reopening *x = arg;

    x->rc = store_get_job(x->rq->d->store, x->id, &x->row, &x->err);
    if (x->rc == 0)
        x->rc = check_owner(x);
    if (x->rc == 0)
        x->rc = x->steps > 0 ? check_completed(x) : check_failed(x);
    if (x->rc < 0 || x->already)
        return;
    x->rc = x->steps > 0 ? look_at_steps(x) : 0;
    if (x->rc == 0)
        x->rc = read_losses(x);
}

/* Such a job may run again only if its spool was put back. Else the reports in the spool would be missing in
 * silence. */
static bool is_spool_lost(const struct job_row *row)
{
    return strncmp(row->reason, JOB_SPOOL_LOST, strlen(JOB_SPOOL_LOST)) == 0;
}

/* Runs on the thread that also removes the job's spool when its processes have left. */
static void note_again(void *arg)
{
    struct reopening *x = arg;

    if (!is_spool_lost(&x->row))
        x->rc = launch_note_again(x->rq->d->jobs_dir, &x->row, &x->err);
}

/* ---- on the loop ---- */

static void answer(struct reopening *x)
{
    const char *state = job_state_name(x->row.state);

    x->rq->result = x->steps > 0 ? json_pack("{s:s, s:I, s:I}", "state", state, "steps", (json_int_t)x->steps, "from", (json_int_t)x->from)
                                 : json_pack("{s:s}", "state", state);
}

static void durable(void *arg, int rc, int64_t id, const struct err *err)
{
    struct reopening *x = arg;

    (void)id;
    if (rc == 0)
        answer(x);
    finish(x, rc, err);
}

/* Refuses a job that has changed since its row was read. */
static int check_unchanged(struct reopening *x, const struct job *j)
{
    if (!j || (!j->leaving && !j->reopening && j->row.state == x->row.state && j->row.last_seq == x->row.last_seq))
        return 0;
    return err_field(&x->err, ERR_STATE, "id", "job %lld is being %s", (long long)x->id,
                     j->leaving     ? "removed"
                     : j->reopening ? "queued again"
                                    : "changed: try again");
}

static void reopen(struct reopening *x)
{
    struct daemon *d = x->rq->d;
    int rc = check_unchanged(x, jobs_find(&d->jobs, x->id));

    if (rc == 0)
        rc = job_apply(&x->row, x->steps > 0 ? JOB_EV_EXTEND : JOB_EV_RESUME, "", now_s(), &x->err);
    if (rc < 0) {
        finish(x, rc, &x->err);
        return;
    }
    if (x->steps > 0) {
        request_note(x->rq, x->id, "extend from %lld to %lld steps", (long long)x->row.steps, (long long)x->steps);
        x->row.steps = x->steps;
    } else {
        request_note(x->rq, x->id, "resume");
    }
    jobs_reopen(&d->jobs, &x->row, x->text, x->losses, durable, x);
}

static void sealed(void *arg, const char *ticket, const struct err *err)
{
    struct reopening *x = arg;

    if (!ticket) {
        finish(x, err->code, err);
        return;
    }
    snprintf(x->row.ticket, sizeof x->row.ticket, "%s", ticket);
    reopen(x);
}

/* The old ticket reaches nothing any more. detd-launch runs as the job's submitter only a spec that it has sealed for
 * that user. */
static void emptied(void *arg, bool gone, bool dying, const char *who, const char *one, const struct err *err)
{
    struct reopening *x = arg;
    struct daemon *d = x->rq->d;
    int client = request_fd(x->rq), rc = err ? err->code : 0;

    (void)gone;
    (void)dying;
    (void)one;
    if (err)
        x->err = *err;
    else if (who[0])
        rc = err_field(&x->err, ERR_STATE, "id", "processes of job %lld's last run were still alive, and were killed: try again",
                       (long long)x->id);
    else if (client < 0)
        rc = err_set(&x->err, ERR_STATE, "the client is gone");
    else
        rc = launcher_seal(d->launcher, client, x->id, x->row.user, store_id(d->store), x->hash, sealed, x, &x->err);
    if (rc < 0)
        finish(x, rc, &x->err);
}

/* A kill with the new ticket would not reach processes that the old one has started: they must be gone first. */
static int renew_ticket(struct reopening *x)
{
    struct daemon *d = x->rq->d;
    const struct job *j = jobs_find(&d->jobs, x->id);

    if (x->rq->caller.uid != x->row.uid)
        return err_field(&x->err, ERR_DENIED, "id", "job %lld runs as %s: only this user may give it more steps", (long long)x->id,
                         x->row.user);
    if (j && j->life.phase != LIFE_IDLE)
        return err_field(&x->err, ERR_STATE, "id", "the processes of job %lld's last run have not left yet: try again", (long long)x->id);
    if (!launcher_is_there(d->launcher))
        return err_set(&x->err, ERR_STATE, "job %lld runs as its submitter, and there is no detd-launch to start it", (long long)x->id);
    return launcher_kill(d->launcher, x->row.ticket, emptied, x, &x->err);
}

static void noted(void *arg)
{
    struct reopening *x = arg;

    if (x->rc == 0 && (!x->row.ticket[0] || !x->text)) { /* no ticket is needed, or its ticket is for this spec */
        reopen(x);
        return;
    }
    if (x->rc == 0)
        x->rc = renew_ticket(x);
    if (x->rc < 0)
        finish(x, x->rc, &x->err);
}

static void after(void *arg)
{
    struct reopening *x = arg;

    if (x->rc == 0 && x->already) {
        answer(x);
        finish(x, 0, &x->err);
        return;
    }
    if (x->rc == 0 && errands_add(x->rq->d->jobs.errands, note_again, noted, x) == 0)
        return; /* the thread owns x now */
    if (x->rc == 0)
        x->rc = err_set(&x->err, -ENOMEM, "out of memory");
    finish(x, x->rc, &x->err);
}

static int begin(struct request *rq, int64_t id, int64_t steps, struct err *err)
{
    struct reopening *x = calloc(1, sizeof *x);
    int rc;

    if (!x)
        return err_set(err, -ENOMEM, "out of memory");
    *x = (struct reopening){ .rq = rq, .id = id, .steps = steps };
    rc = place_take(&rq->d->jobs, rq->caller.uid, rq->caller.admin, &x->place, err);
    if (rc == 0)
        rc = request_work(rq, work, after, x, err);
    if (rc < 0)
        reopening_free(x);
    return rc;
}

int do_job_extend(struct request *rq, struct err *err)
{
    json_int_t id, steps;
    int rc = params_unpack(rq, err, "{s:I, s:I}", "id", &id, "steps", &steps);

    if (rc == 0 && steps < 1)
        rc = err_field(err, ERR_INPUT, "steps", "steps: must be 1 or more, is %lld", (long long)steps);
    return rc < 0 ? rc : begin(rq, id, steps, err);
}

/* A job that is not in memory has ended: the store says how. */
int do_job_resume(struct request *rq, struct err *err)
{
    const struct job *j;
    json_int_t id;
    int rc = params_unpack(rq, err, "{s:I}", "id", &id);

    if (rc < 0)
        return rc;
    j = jobs_find(&rq->d->jobs, id);
    return j && j->row.state != JOB_FAILED ? methods_command(rq, JOB_EV_RESUME, "resume", err) : begin(rq, id, 0, err);
}
