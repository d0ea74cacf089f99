#include "supervisor/publish.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/job/jobspec.h"
#include "supervisor/attempt.h"
#include "supervisor/going.h"
#include "supervisor/needs.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/program.h"
#include "supervisor/records.h"
#include "supervisor/spool/spool.h"

static void warn(const struct publish *p, const char *text)
{
    job_log("%s", text);
    records_event(p->records, -1, "warning", "checkpoint", text, NULL);
}

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
        warn(p, p->err.msg);
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
    char text[sizeof p->err.msg + 80];

    snprintf(text, sizeof text, "the checkpoint of step %lld is not recorded: %s", (long long)step, why);
    warn(p, text);
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

static bool is_complete(const struct publish *p, const struct publish_open *o)
{
    int n = p->attempt->nranks;

    return o->ready == (n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1);
}

/* All ranks have written it. Rows of later steps cannot be complete yet, so the newest validation is one before it. */
static void complete(struct publish *p, const struct publish_open *o)
{
    const char *folder = p->needs->program->directory, *path = o->path;
    struct publish_one *one = &p->one[p->waiting];
    int n;

    if (p->waiting == PUBLISH_WAITING) {
        left_out(p, o->step, "others before it wait for the disk");
        return;
    }
    *one = (struct publish_one){ .saved = { .step = o->step, .value = p->score.step > p->last ? p->score.value : NAN },
                                 .val_loss = p->val_step > p->last ? p->val_loss : NAN,
                                 .lower = p->score.lower };
    n = snprintf(one->saved.path, sizeof one->saved.path, "%s%s%s", path[0] == '/' ? "" : folder, path[0] == '/' ? "" : "/", path);
    if (!path[0] || n >= (int)sizeof one->saved.path) {
        left_out(p, o->step, "rank 0 gave no path, or one that is too long");
        return;
    }
    p->last = o->step;
    p->waiting++;
    publish_tick(p);
}

static void drop_first(struct publish *p)
{
    p->nopen--;
    memmove(p->open, p->open + 1, (size_t)p->nopen * sizeof *p->open);
}

/* A rank that lacks it will not write it any more. Only the first is told. */
static void give_up_first(struct publish *p, int64_t step)
{
    char text[100];
    int lacks = 0;

    while (p->open[0].ready >> lacks & 1)
        lacks++;
    if (!p->told) {
        snprintf(text, sizeof text, "rank %d has not written it, and step %lld follows", lacks, (long long)step);
        left_out(p, p->open[0].step, text);
    }
    p->told = true;
    drop_first(p);
}

/* The steps of a rank rise, so those before `step` that it lacks are never complete. Returns NULL for a step that was
 * given up. */
static struct publish_open *find_or_add(struct publish *p, int rank, int64_t step)
{
    while (p->nopen > 0 && p->open[0].step < step && (!(p->open[0].ready >> rank & 1) || p->nopen == PUBLISH_OPEN))
        give_up_first(p, step);
    for (int i = 0; i < p->nopen; i++)
        if (p->open[i].step == step)
            return &p->open[i];
    if (p->nopen == PUBLISH_OPEN || (p->nopen > 0 && p->open[p->nopen - 1].step > step))
        return NULL;
    p->open[p->nopen] = (struct publish_open){ .step = step };
    return &p->open[p->nopen++];
}

void publish_take(struct publish *p, int rank, int64_t step, const char *path)
{
    struct publish_open *o = step <= p->last ? NULL : find_or_add(p, rank, step);

    if (!o)
        return;
    o->ready |= UINT64_C(1) << rank;
    if (rank == 0)
        snprintf(o->path, sizeof o->path, "%s", strlen(path) < sizeof o->path ? path : "");
    if (!is_complete(p, o))
        return;
    while (p->open[0].step < step)
        give_up_first(p, step);
    complete(p, &p->open[0]);
    drop_first(p);
}

int publish_begin(struct publish *p, struct err *err)
{
    struct program *program = p->needs->program;
    const struct saved_one *one;
    int rc;

    saved_close(&p->saved);
    rc = saved_open(&p->saved, err);
    if (rc < 0)
        return rc;
    one = saved_pick(&p->saved);
    if (!one && p->saved.n > 0)
        warn(p, "no published checkpoint is there any more, with its size and time: the program begins from the start");
    program->resume_step = p->last = one ? one->step : 0;
    snprintf(program->resume, sizeof program->resume, "%s", one ? one->path : "");
    p->val_step = 0;
    p->nopen = 0;
    p->told = false;
    p->score = (struct publish_score){ 0 };
    return saved_rewind(&p->saved, program->resume_step, err);
}

void publish_close(struct publish *p)
{
    saved_close(&p->saved);
}
