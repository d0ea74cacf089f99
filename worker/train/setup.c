/* worker/train/setup.c - opens and closes what a rank works with. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/checkpoint/identity.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/data/check.h"
#include "worker/data/loader.h"
#include "worker/data/problems.h"
#include "worker/layers/layers.h"
#include "worker/models/registry.h"
#include "worker/optim/optimizer.h"
#include "worker/train/feed.h"
#include "worker/report/progress.h"
#include "worker/train/losses.h"
#include "worker/train/shapes.h"
#include "worker/train/statistics.h"
#include "worker/train/trainer_impl.h"

static const size_t arena_chunk = (size_t)256 << 20, gpu_arena_chunk = (size_t)1 << 30, cache_bytes = (size_t)1 << 30;

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

/* ---- data ---- */

enum { GPU_WORKERS = 16 }; /* at most, where nobody said: no GPU eats more than they decode */

/* Compute threads of this rank; a rank that runs alone was told none and has all the cores it may use. */
static int threads(const struct trainer *t)
{
    cpu_set_t set;

    if (t->spec->run_threads > 0)
        return (int)t->spec->run_threads;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* The CPU device computes on the same cores; beside a GPU they have little else to do. */
static int workers(const struct trainer *t)
{
    int n = t->machine.dev->host_memory ? threads(t) / 4 : threads(t) - 1;

    if (t->spec->data_workers > 0)
        return (int)t->spec->data_workers;
    if (!t->machine.dev->host_memory && n > GPU_WORKERS)
        return GPU_WORKERS;
    return n > 1 ? n : 1;
}

static int report_split(struct trainer *t, const char *split, const struct dataset *d, const struct problems *p, struct err *err)
{
    const char *bad[20];
    int nbad = 0;

    while (nbad < p->kept && nbad < (int)(sizeof bad / sizeof *bad)) {
        bad[nbad] = p->text[nbad];
        nbad++;
    }
    return report_data(t->machine.report, split, d->nimages, d->offset[d->nimages], p->count, nbad, bad, err);
}

/* Rank 0 checks a split once in the life of the job and writes the index; everybody else, and every later attempt, reads that. */
static int check_once(struct trainer *t, const char *split, const struct check_options *opt, const char *index, struct err *err)
{
    struct problems *problems;
    struct dataset *d;
    int rc;

    if (t->opt.rank != 0 || access(index, F_OK) == 0)
        return 0;
    problems = calloc(1, sizeof *problems);
    if (!problems)
        return err_set(err, -ENOMEM, "out of memory");
    rc = check_split(opt, problems, &d, err);
    if (rc >= 0) {
        rc = index_write(index, d, err);
        if (rc >= 0)
            rc = report_split(t, split, d, problems, err);
        dataset_free(d);
    }
    free(problems);
    return rc;
}

static int open_split(struct trainer *t, const char *split, const char *annotations, const char *images, struct dataset **ret,
                      struct err *err)
{
    struct check_options opt = { annotations, images, strcmp(t->spec->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
                                 t->spec->run_threads > 0 ? (int)t->spec->run_threads : 1 };
    char index[4096 + 32];
    int rc;

    snprintf(index, sizeof index, "%s/index.%s", t->opt.job_dir, split);
    rc = check_once(t, split, &opt, index, err);
    if (rc >= 0)
        rc = comm_barrier(t->machine.comm, COMM_SYNC, err);
    return rc < 0 ? rc : index_load(index, &opt, ret, err);
}

static int same_classes(const struct dataset *a, const struct dataset *b, struct err *err)
{
    for (int i = 0; i < a->nclasses || i < b->nclasses; i++)
        if (i >= a->nclasses || i >= b->nclasses || a->classes[i].id != b->classes[i].id)
            return err_set(err, ERR_DATA, "%s and %s list different categories: both splits need the same ids", a->source, b->source);
    return 0;
}

static int open_data(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    int rc;

    progress_phase(t->machine.progress, PHASE_CHECK_DATA);
    rc = open_split(t, "train", s->data_train_annotations, s->data_train_images, &t->train, err);
    if (rc < 0 || !s->data_val_annotations)
        return rc;
    rc = open_split(t, "val", s->data_val_annotations, s->data_val_images, &t->val, err);
    return rc < 0 ? rc : same_classes(t->train, t->val, err);
}

static int open_feed(struct trainer *t, struct loader *loader, struct feed **ret_feed, struct err *err)
{
    *ret_feed = feed_open(t->machine.dev, t->machine.carrier, loader);
    return *ret_feed ? 0 : err_set(err, ERR_DEVICE, "out of memory: batches");
}

/* After the checkpoint is loaded: decoding starts at the step that comes next. */
static int open_loaders(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    struct loader_options o = {
        .train = true,
        .seed = (uint64_t)s->train_seed,
        .batch = (int)s->train_batch,
        .shards = (int)s->train_shards,
        .shard_lo = t->course.mine.lo,
        .shard_hi = t->course.mine.hi,
        .waves = (int)s->train_waves,
        .first_step = t->step + 1,
        .steps = s->train_steps,
        .scales = t->course.scales,
        .augment = { (float)s->data_augment_flip, (float)s->data_augment_vflip, (float)s->data_augment_jitter, (float)s->data_augment_scale,
                     (float)s->data_augment_hue, (float)s->data_augment_saturation, (float)s->data_augment_exposure },
        .on_bad = strcmp(s->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
        .dev = t->machine.dev,
        .workers = workers(t),
        .cache_bytes = cache_bytes / (size_t)t->opt.nranks,
    };
    int rc = t->step < s->train_steps ? loader_open(t->train, &o, &t->loader, err) : 0;

    if (rc >= 0 && t->loader)
        rc = open_feed(t, t->loader, &t->feed, err);
    if (rc < 0 || !t->val)
        return rc;
    o.train = false;
    o.batch = (int)s->val_batch;
    o.canvas = t->model->canvas;
    o.rank = t->opt.rank;
    o.ranks = t->opt.nranks;
    rc = loader_open(t->val, &o, &t->val_loader, err);
    return rc < 0 ? rc : open_feed(t, t->val_loader, &t->val_feed, err);
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
        .val_images = t->val ? t->val->nimages : 0,
        .val_batch = (int)t->spec->val_batch,
    };

    t->shapes = shapes_new(&o);
    return t->shapes ? 0 : err_set(err, ERR_DEVICE, "out of memory");
}

static int open_model(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    struct gradients_options r = { .nshards = (int)s->train_shards, .nwaves = (int)s->train_waves };
    int rc = model_open(t->opt.models, s, t->train->nclasses, t->machine.dev, &t->model, err);

    if (rc < 0)
        return rc;
    course_init(&t->course, s, t->opt.rank, t->opt.nranks, t->model->canvas, t->model->grain);
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
    t->best = INFINITY;
    t->val_loss = NAN;
    t->saved_step = t->val_step = -1;
    rc = open_machine(t, err);
    if (rc >= 0)
        rc = open_data(t, err);
    if (rc >= 0)
        rc = open_model(t, err);
    if (rc < 0)
        return rc;
    window_reset(&t->window, t->model->ops->nterms);
    progress_phase(t->machine.progress, PHASE_LOAD);
    rc = open_identity(t, err);
    if (rc >= 0)
        rc = trainer_resume(t, err);
    if (rc >= 0 && opt->rank == 0 && t->step == 0 && t->model->loaded[0])
        rc = report_event(t->machine.report, err, "info", "init", "%s", t->model->loaded);
    return rc < 0 ? rc : open_loaders(t, err);
}

void trainer_close(struct trainer *t)
{
    shapes_free(t->shapes);
    feed_close(t->feed);
    feed_close(t->val_feed);
    loader_close(t->loader);
    loader_close(t->val_loader);
    optimizer_close(t->optimizer);
    losses_close(t->losses);
    statistics_close(t->statistics);
    gather_close(t->val_losses);
    gradients_close(t->gradients);
    tape_free(t->tape);
    arena_free(t->arena);
    model_free(t->model);
    dataset_free(t->train);
    dataset_free(t->val);
    identity_close(t->identity);
    machine_close(&t->machine);
}
