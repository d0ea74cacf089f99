/* worker/train/setup.c - opens and closes what a rank works with. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/checkpoint/identity.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/layers/layers.h"
#include "worker/data/dataset.h"
#include "worker/models/registry.h"
#include "worker/optim/optimizer.h"
#include "worker/report/progress.h"
#include "worker/train/losses.h"
#include "worker/train/shapes.h"
#include "worker/train/statistics.h"
#include "worker/train/trainer_impl.h"

static const size_t arena_chunk = (size_t)256 << 20, gpu_arena_chunk = (size_t)1 << 30;

/* Tiers that earlier attempts agreed on come with the word to go. */
static int open_machine(struct trainer *t, struct err *err)
{
    struct report_go *go = calloc(1, sizeof *go);
    int rc = go ? machine_open(&t->machine, t->spec, &t->opt, go, err) : err_set(err, -ENOMEM, "out of memory");

    control_init(&t->control, t->machine.report, t->spec->train_log_every, tier_of(t->spec->run_deterministic));
    for (int i = 0; rc >= 0 && i < go->ntiers; i++)
        control_tier(&t->control, go->tiers[i].step, tier_of(go->tiers[i].tier));
    if (rc >= 0)
        memcpy(t->store_id, go->store_id, sizeof go->store_id);
    free(go);
    return rc;
}

/* ---- model ---- */

/* What a step leaves besides gradients: losses, batch statistics. */
static int open_numbers(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    const struct losses_options losses = { .dev = t->machine.dev,
                                           .comm = t->machine.comm,
                                           .link = t->machine.link,
                                           .model = t->model,
                                           .shards = (int)s->train_shards,
                                           .images = (int)(s->train_batch / s->train_shards),
                                           .head_bytes = CONTROL_WORDS * sizeof(uint64_t) };
    const struct statistics_options statistics = {
        .dev = t->machine.dev, .link = t->machine.link, .model = t->model, .shards = (int)s->train_shards
    };
    int rc = losses_open(&losses, &t->losses, err);

    return rc < 0 ? rc : statistics_open(&statistics, &t->statistics, err);
}

static int open_shapes(struct trainer *t, struct err *err)
{
    const struct shapes_options o = {
        .machine = &t->machine,
        .model = t->model,
        .course = &t->course,
        .control = &t->control,
        .train = t->train.task,
        .val = t->val.task,
        .val_batch = (int)t->spec->val_batch,
    };

    t->shapes = shapes_new(&o);
    return t->shapes ? 0 : err_set(err, ERR_DEVICE, "out of memory");
}

static int open_model(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    struct gradients_options r = { .nshards = (int)s->train_shards, .nwaves = (int)s->train_waves };
    int rc = model_open(t->opt.models, s, t->train.set->nclasses, t->machine.dev, &t->model, err);

    if (rc < 0)
        return rc;
    course_init(&t->course, s, t->opt.rank, t->opt.nranks);
    r.dev = t->machine.dev;
    r.side = t->machine.side;
    r.comm = t->machine.link;
    t->arena = arena_new(t->machine.dev, t->machine.dev->host_memory ? arena_chunk : gpu_arena_chunk);
    t->tape = t->arena ? tape_new(t->machine.dev, t->arena, t->model->nparams) : NULL;
    if (!t->tape)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = gradients_open(&r, t->model->params, t->model->nparams, &t->gradients, err);
    if (rc >= 0)
        rc = open_numbers(t, err);
    if (rc >= 0)
        rc = splits_sample(&t->machine, &t->course, t->model, &t->train, &t->val, err);
    if (rc >= 0)
        rc = open_shapes(t, err);
    if (rc >= 0)
        rc = optimizer_open(t->machine.dev, s, t->model->params, t->model->nparams, t->model->groups, &t->optimizer, err);
    return rc;
}

static int open_identity(struct trainer *t, struct err *err)
{
    const struct identity_options o = { t->opt.job_dir, t->spec->run_precision, t->machine.dev, t->machine.report };

    return t->opt.rank == 0 ? identity_open(&o, &t->identity, err) : 0;
}

int trainer_open(struct trainer *t, const struct jobspec *spec, const struct trainer_options *opt, struct err *err)
{
    int rc;

    memset(t, 0, sizeof *t);
    t->spec = spec;
    t->opt = *opt;
    t->saved_step = -1;
    rc = open_machine(t, err);
    if (rc >= 0)
        rc = splits_open(&t->machine, &t->train, &t->val, err);
    if (rc >= 0)
        rc = open_model(t, err);
    if (rc < 0)
        return rc;
    state_init(&t->state, t->model->nterms);
    progress_phase(t->machine.progress, PHASE_LOAD);
    rc = open_identity(t, err);
    if (rc >= 0)
        rc = trainer_resume(t, err);
    if (rc >= 0 && opt->rank == 0 && t->state.step == 0 && t->model->loaded[0])
        rc = report_event(t->machine.report, err, "info", "init", "%s", t->model->loaded);
    return rc < 0 ? rc : splits_begin(&t->machine, &t->course, t->state.step + 1, &t->train, &t->val, err);
}

void trainer_close(struct trainer *t)
{
    shapes_free(t->shapes);
    split_close(&t->train);
    split_close(&t->val);
    optimizer_close(t->optimizer);
    losses_close(t->losses);
    statistics_close(t->statistics);
    gather_close(t->val_losses);
    gradients_close(t->gradients);
    tape_free(t->tape);
    arena_free(t->arena);
    model_free(t->model);
    identity_close(t->identity);
    machine_close(&t->machine);
}
