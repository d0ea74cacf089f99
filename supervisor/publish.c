#include "supervisor/publish.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/job/jobspec.h"
#include "supervisor/attempt.h"
#include "supervisor/going.h"
#include "supervisor/needs.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/program.h"
#include "supervisor/records.h"
#include "supervisor/spool/spool.h"

/* ---- on a thread ---- */

static void work(uv_work_t *handle)
{
    struct publish *p = handle->data;
    struct saved_one *one = &p->one[0].saved;

    p->err.code = 0;
    one->best = saved_is_best(&p->saved, one->value, p->one[0].lower);
    if (spool_sync(p->records->spool, &p->err) == 0 && saved_measure(one, &p->err) == 0)
        saved_add(&p->saved, one, &p->err);
}

static void prune(uv_work_t *handle)
{
    struct publish *p = handle->data;

    p->err.code = 0;
    saved_prune(&p->saved, p->job_dir, (int)p->needs->spec->checkpoint_keep, &p->err);
}

/* ---- on the loop ---- */

static void next(struct publish *p)
{
    p->busy = false;
    p->waiting--;
    memmove(p->one, p->one + 1, (size_t)p->waiting * sizeof *p->one);
    publish_tick(p);
}

static void pruned(uv_work_t *handle, int status)
{
    struct publish *p = handle->data;

    (void)status;
    if (p->err.code)
        records_warn(p->records, -1, "checkpoint", "%s", p->err.msg);
    next(p);
}

static void record(struct publish *p)
{
    const struct saved_one *one = &p->one[0].saved;
    struct line *l = records_begin(p->records, "checkpoint");

    line_int(l, "step", one->step);
    line_str(l, "phase", "published");
    line_str(l, "path", one->path);
    line_int(l, "bytes", one->bytes);
    line_real(l, "val_loss", p->one[0].val_loss);
    line_bool(l, "best", one->best);
    records_add(p->records, NULL);
    going_saved(p->going, one->step);
    p->attempt->saved = true;
    job_log("checkpoint of step %lld is published", (long long)one->step);
}

static void left_out(const struct publish *p, int64_t step, const char *why)
{
    records_warn(p->records, -1, "checkpoint", "the checkpoint of step %lld is not recorded: %s", (long long)step, why);
}

static void published(uv_work_t *handle, int status)
{
    struct publish *p = handle->data;

    (void)status;
    if (p->err.code) {
        left_out(p, p->one[0].saved.step, p->err.msg);
        next(p);
        return;
    }
    record(p);
    uv_queue_work(p->loop, &p->work, prune, pruned); /* fails only without a callback */
}

void publish_tick(struct publish *p)
{
    if (p->busy || p->waiting == 0 || p->records->late)
        return;
    p->busy = true;
    p->work.data = p;
    uv_queue_work(p->loop, &p->work, work, published);
}

struct ready { /* what a rank says of a checkpoint */
    struct steps_item item;
    char path[];
};

/* All ranks have written it. Rows of later steps cannot be complete yet, so the newest validation is one before it. */
static void complete(void *arg, int64_t step, struct steps_item *const *items)
{
    struct publish *p = arg;
    const char *folder = p->needs->spec->program_directory, *path = ((const struct ready *)items[0])->path;
    struct publish_one *one = &p->one[p->waiting];
    int n;

    if (p->waiting == PUBLISH_WAITING) {
        left_out(p, step, "others before it wait for the disk");
        return;
    }
    *one = (struct publish_one){ .saved = { .step = step, .value = p->score.step > p->last ? p->score.value : NAN },
                                 .val_loss = p->val_step > p->last ? p->val_loss : NAN,
                                 .lower = p->score.lower };
    n = snprintf(one->saved.path, sizeof one->saved.path, "%s%s%s", path[0] == '/' ? "" : folder, path[0] == '/' ? "" : "/", path);
    if (!path[0] || n >= (int)sizeof one->saved.path) {
        left_out(p, step, "rank 0 gave no path, or one that is too long");
        return;
    }
    p->last = step;
    p->waiting++;
    publish_tick(p);
}

/* Only the first is told. */
static void given_up(void *arg, int64_t step, int rank, const char *why)
{
    struct publish *p = arg;
    if (!p->told)
        records_warn(p->records, -1, "checkpoint", "the checkpoint of step %lld is not recorded: rank %d %s", (long long)step, rank, why);
    p->told = true;
}

void publish_take(struct publish *p, int rank, int64_t step, const char *path)
{
    size_t bytes = sizeof(struct ready) + strlen(path) + 1;
    struct ready *r = step > p->last ? malloc(bytes) : NULL;

    if (!r)
        return;
    r->item = (struct steps_item){ .step = step, .bytes = bytes };
    memcpy(r->path, path, strlen(path) + 1);
    if (!steps_add(&p->steps, rank, &r->item))
        free(r);
}

void publish_attempt_over(struct publish *p)
{
    const struct steps_rank *r = p->steps.rank;
    int64_t step = 0;
    int lacking = -1;

    for (int i = p->steps.nranks - 1; i >= 0; i--)
        if (r[i].first)
            step = r[i].first->step;
        else
            lacking = i;
    if (step > 0)
        given_up(p, step, lacking, "has not called run.checkpoint() for it, as every rank must");
}

/* newest: of those that a start has forgotten. */
static void tell_lost(const struct publish *p, const struct saved_one *newest)
{
    const char *what = access(newest->path, F_OK) < 0 ? "is gone" : "was changed after it was recorded";

    records_warn(p->records, -1, "checkpoint",
                 "no published checkpoint is there any more as it was recorded, so the program begins from the start: that of step %lld, "
                 "'%.200s', %s",
                 (long long)newest->step, newest->path, what);
}

int publish_begin(struct publish *p, struct err *err)
{
    struct program *program = p->needs->program;
    const struct saved_one *one;
    int rc, n;

    saved_close(&p->saved);
    rc = saved_open(&p->saved, err);
    n = p->saved.n;
    if (rc < 0 || (rc = saved_rewind(&p->saved, err)) < 0)
        return rc;
    one = p->saved.n > 0 ? &p->saved.all[p->saved.n - 1] : NULL;
    if (!one && n > 0 && p->saved.all)
        tell_lost(p, &p->saved.all[n - 1]);
    program->resume_step = p->last = one ? one->step : 0;
    snprintf(program->resume, sizeof program->resume, "%s", one ? one->path : "");
    p->val_step = 0;
    steps_close(&p->steps);
    p->steps = (struct steps){
        .nranks = p->attempt->nranks, .max_open = PUBLISH_OPEN, .max_bytes = SIZE_MAX, .complete = complete, .given_up = given_up, .arg = p
    };
    p->told = false;
    p->score = (struct publish_score){ 0 };
    return 0;
}

void publish_close(struct publish *p)
{
    steps_close(&p->steps);
    saved_close(&p->saved);
}
