/* daemon/methods_extend.c - job.extend: a completed job trains on, as if it had been given so many steps at first. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/conn.h"
#include "daemon/daemon.h"
#include "daemon/errand.h"
#include "daemon/launch.h"
#include "daemon/launcher.h"
#include "daemon/methods.h"
#include "daemon/store.h"
#include "daemon/text.h"
#include "proto/err.h"
#include "proto/jobspec.h"

struct extending {
    struct request *rq;
    int64_t id, steps;
    bool already; /* it was extended so: the reply was lost */
    struct job_row row;
    struct jobspec *was;
    json_t *losses;
    char *text;   /* the spec with more steps */
    int64_t from; /* the checkpoint that it goes on from; 0: none */
    int rc;
    struct err err;
};

static void extending_free(struct extending *x)
{
    jobspec_free(x->was);
    json_decref(x->losses);
    free(x->text);
    free(x);
}

static void finish(struct extending *x, int rc, const struct err *err)
{
    request_granted(x->rq, rc, err);
    extending_free(x);
}

/* ---- on a thread: what can be refused ---- */

static int check_row(struct extending *x)
{
    const struct job_row *row = &x->row;

    if (!x->rq->caller.admin && x->rq->caller.uid != row->uid)
        return err_field(&x->err, ERR_DENIED, "id", "job %lld belongs to %s", (long long)row->id, row->user);
    x->already = !job_is_done(row->state) && row->attempt > 0 && row->steps == x->steps;
    if (x->already || row->state == JOB_COMPLETED)
        return 0;
    return err_field(&x->err, ERR_STATE, "id", "job %lld is %s: only a completed one is given more steps%s", (long long)row->id,
                     job_state_name(row->state), job_is_done(row->state) ? "; `detctl retry` queues its job file once more" : "");
}

static int read_spec(struct extending *x)
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
    return rc == 0 && !x->text ? err_set(&x->err, -ENOMEM, "out of memory") : rc;
}

/* It would end at once, or where it did, for the count of validations is in its checkpoints. */
static int check_stopped(struct extending *x)
{
    const struct job_row *row = &x->row;

    if (x->was->train_stop_after <= 0 || row->step >= row->steps)
        return 0;
    return err_field(&x->err, ERR_STATE, "train.stop_after",
                     "job %lld cannot be given more steps: train.stop_after (%lld) ended it after step %lld of %lld, and would again",
                     (long long)row->id, (long long)x->was->train_stop_after, (long long)row->step, (long long)row->steps);
}

/* As store_job_details() says whether one is there: of a folder that is its user's, detd does not know. */
static bool look_at_checkpoint(void *arg, int64_t step)
{
    struct extending *x = arg;
    char path[sizeof x->rq->d->jobs_dir + 64];

    snprintf(path, sizeof path, "%s/%lld/checkpoints/step-%lld", x->rq->d->jobs_dir, (long long)x->id, (long long)step);
    if (jobspec_on_the_way(x->was, step) && (access(path, F_OK) == 0 || errno != ENOENT))
        x->from = step;
    return x->from == 0;
}

static int find_checkpoint(struct extending *x)
{
    struct err why;
    int rc = store_each_checkpoint(x->rq->d->store, x->id, look_at_checkpoint, x, &x->err);

    if (rc < 0 || x->from > 0)
        return rc;
    if (jobspec_on_the_way(x->was, x->was->train_steps))
        return err_field(&x->err, ERR_STATE, "id", "job %lld cannot be given more steps: no checkpoint of it is there", (long long)x->id);
    jobspec_not_on_the_way(x->was, &why);
    return err_field(&x->err, ERR_STATE, why.field, "job %lld cannot be given more steps, %s, and no checkpoint of before is there",
                     (long long)x->id, why.msg);
}

static int read_losses(struct extending *x)
{
    struct text t = { 0 };
    int rc = store_losses(x->rq->d->store, x->id, &t, &x->err);

    x->losses = rc == 0 && t.p ? json_loads(t.p, 0, NULL) : NULL;
    text_free(&t);
    return rc == 0 && !x->losses ? err_set(&x->err, -ENOMEM, "out of memory") : rc;
}

static void work(void *arg)
{
    struct extending *x = arg;

    x->rc = store_get_job(x->rq->d->store, x->id, &x->row, &x->err);
    if (x->rc == 0)
        x->rc = check_row(x);
    if (x->rc < 0 || x->already)
        return;
    x->rc = read_spec(x);
    if (x->rc == 0)
        x->rc = check_stopped(x);
    if (x->rc == 0)
        x->rc = find_checkpoint(x);
    if (x->rc == 0)
        x->rc = read_losses(x);
}

/* On the thread that does so, too, when the job's processes have left. */
static void note_end(void *arg)
{
    struct extending *x = arg;

    x->rc = launch_note_end(x->rq->d->jobs_dir, &x->row, &x->err);
}

/* ---- on the loop ---- */

static void answer(struct extending *x)
{
    x->rq->result =
        json_pack("{s:s, s:I, s:I}", "state", job_state_name(x->row.state), "steps", (json_int_t)x->steps, "from", (json_int_t)x->from);
}

static void durable(void *arg, int rc, int64_t id, const struct err *err)
{
    struct extending *x = arg;

    (void)id;
    if (rc == 0)
        answer(x);
    finish(x, rc, err);
}

static void extend(struct extending *x)
{
    struct daemon *d = x->rq->d;
    const struct job *j = jobs_find(&d->jobs, x->id);
    int rc = 0;

    if (j && (j->leaving || j->extending))
        rc = err_field(&x->err, ERR_STATE, "id", "job %lld is being %s", (long long)x->id, j->leaving ? "removed" : "given more steps");
    if (rc == 0)
        rc = job_apply(&x->row, JOB_EV_EXTEND, "", now_s(), &x->err);
    if (rc < 0) {
        finish(x, rc, &x->err);
        return;
    }
    request_note(x->rq, x->id, "extend from %lld to %lld steps", (long long)x->row.steps, (long long)x->steps);
    x->row.steps = x->steps;
    x->row.want = JOB_WANT_RUN;
    x->row.deaths = 0;
    x->row.backfill = false;
    jobs_extend(&d->jobs, &x->row, x->text, x->losses, durable, x);
}

static void sealed(void *arg, const char *ticket, const struct err *err)
{
    struct extending *x = arg;

    if (!ticket) {
        finish(x, err->code, err);
        return;
    }
    snprintf(x->row.ticket, sizeof x->row.ticket, "%s", ticket);
    extend(x);
}

/* detd-launch runs as its submitter only what it has sealed for him. */
static int seal(struct extending *x)
{
    struct daemon *d = x->rq->d;
    int client = request_fd(x->rq);

    if (x->rq->caller.uid != x->row.uid)
        return err_field(&x->err, ERR_DENIED, "id", "job %lld runs as %s, who alone can give it more steps", (long long)x->id, x->row.user);
    if (client < 0)
        return err_set(&x->err, ERR_STATE, "the client is gone");
    if (!launcher_is_there(d->launcher))
        return err_set(&x->err, ERR_STATE, "job %lld runs as its submitter, and there is no detd-launch to start it", (long long)x->id);
    return launcher_seal(d->launcher, client, x->id, store_id(d->store), x->text, sealed, x, &x->err);
}

static void end_noted(void *arg)
{
    struct extending *x = arg;

    if (x->rc == 0 && !x->row.ticket[0]) {
        extend(x);
        return;
    }
    if (x->rc == 0)
        x->rc = seal(x);
    if (x->rc < 0)
        finish(x, x->rc, &x->err);
}

static void after(void *arg)
{
    struct extending *x = arg;

    if (x->rc == 0 && x->already) {
        answer(x);
        finish(x, 0, &x->err);
        return;
    }
    if (x->rc == 0 && errands_add(x->rq->d->jobs.errands, note_end, end_noted, x) < 0)
        x->rc = err_set(&x->err, -ENOMEM, "out of memory");
    if (x->rc < 0)
        finish(x, x->rc, &x->err);
}

int do_job_extend(struct request *rq, struct err *err)
{
    json_int_t id, steps;
    int rc = params_unpack(rq, err, "{s:I, s:I}", "id", &id, "steps", &steps);
    struct extending *x = rc == 0 ? calloc(1, sizeof *x) : NULL;

    if (rc < 0)
        return rc;
    if (!x)
        return err_set(err, -ENOMEM, "out of memory");
    *x = (struct extending){ .rq = rq, .id = id, .steps = steps };
    rc = request_work(rq, work, after, x, err);
    if (rc < 0)
        extending_free(x);
    return rc;
}
