/* worker/train/setup.c - opens and closes what a rank works with. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/comm/staged.h"
#include "worker/core/arena.h"
#include "worker/layers/tape.h"
#include "worker/data/check.h"
#include "worker/data/loader.h"
#include "worker/data/problems.h"
#include "worker/layers/layers.h"
#include "worker/models/model.h"
#include "worker/optim/ema.h"
#include "worker/train/feed.h"
#include "worker/report/progress.h"
#include "worker/train/trainer_impl.h"

/* A rank that waits for another one waits for its files too; hangs are detd-job's to find, by the progress pages. */
enum { COMM_TIMEOUT_MS = 4 * 3600 * 1000 };
static const size_t arena_chunk = (size_t)256 << 20, gpu_arena_chunk = (size_t)1 << 30, cache_bytes = (size_t)1 << 30;

_Static_assert((int)CHANNEL_GRAD == COMM_GRAD && (int)CHANNEL_SYNC == COMM_SYNC && (int)CHANNEL_COUNT == COMM_CHANNELS, "channels");

/* A link beside the comm numbers its operations for itself; the page counts what a channel's thread enters on either. */
static void on_collective(void *arg, int channel, uint32_t number, uint64_t fingerprint)
{
    struct trainer *t = arg;

    (void)number;
    progress_collective(t->progress, (enum progress_channel)channel, fingerprint);
}

static void on_wait(void *arg, bool waiting)
{
    struct trainer *t = arg;

    progress_phase(t->progress, waiting ? PHASE_REPORT_WAIT : PHASE_OPTIMIZER);
}

/* Ranks on whole GPUs of their own meet through the backend's link. NCCL takes slices of one GPU for that GPU twice and refuses. */
static bool wants_link(const struct trainer *t, const struct device_info *info)
{
    return t->opt.backend->link_open && t->opt.nranks > 1 && t->spec->run_ranks_per_gpu == 1 && strncmp(info->uuid, "MIG-", 4) != 0;
}

static int say_hello(struct trainer *t, struct err *err)
{
    char id[REPORT_ID] = "";
    const char *versions[2 * DEVICE_MAX_VERSIONS + 1] = { NULL };
    struct report_device said;
    struct device_info info;
    int rc = 0;

    t->dev->ops->info(t->dev, &info);
    if (t->opt.rank == 0 && wants_link(t, &info))
        rc = t->opt.backend->link_id(id, sizeof id, err); /* no id from rank 0: all ranks meet in shared memory */
    if (rc < 0)
        return rc;
    for (int i = 0; i < info.nversions; i++) {
        versions[2 * i] = info.version[i].name;
        versions[2 * i + 1] = info.version[i].value;
    }
    said = (struct report_device){ .name = t->dev->host_memory ? t->opt.backend->name : info.name,
                                   .uuid = info.uuid[0] ? info.uuid : NULL,
                                   .devices = info.devices,
                                   .memory_bytes = info.memory_bytes,
                                   .versions = versions };
    return report_hello(t->report, &said, id[0] ? id : NULL, err);
}

/* *ret_link_id: what rank 0 made for all. */
static int greet(struct trainer *t, char ret_link_id[REPORT_ID], struct err *err)
{
    struct report_go *go = calloc(1, sizeof *go);
    int rc = go ? say_hello(t, err) : err_set(err, -ENOMEM, "out of memory");

    progress_phase(t->progress, PHASE_WAIT_GO);
    if (rc >= 0)
        rc = report_wait_go(t->report, go, err);
    control_init(&t->control, t->report, t->spec->train_log_every, tier_of(t->spec->run_deterministic));
    for (int i = 0; i < (rc >= 0 ? go->ntiers : 0); i++)
        control_tier(&t->control, go->tiers[i].step, tier_of(go->tiers[i].tier));
    if (rc >= 0)
        memcpy(ret_link_id, go->nccl_id, sizeof go->nccl_id);
    if (rc >= 0)
        memcpy(t->store_id, go->store_id, sizeof go->store_id);
    free(go);
    if (rc >= 0 && t->opt.why_cpu && t->opt.rank == 0)
        rc = report_event(t->report, err, "info", "device", "run.device auto: the CPU is used: %s", t->opt.why_cpu);
    return rc;
}

static int open_link(struct trainer *t, struct comm_options *opt, const char *id, struct err *err)
{
    opt->host = t->comm;
    if (t->dev->host_memory) {
        t->link = t->comm;
        return 0;
    }
    if (id[0])
        return t->opt.backend->link_open(t->dev, t->side, opt, id, &t->link, err);
    return comm_open_staged(t->comm, t->dev, t->side, &t->link, err);
}

static enum precision precision_of(const char *name)
{
    return strcmp(name, "bf16") == 0 ? PRECISION_BF16 : strcmp(name, "tf32") == 0 ? PRECISION_TF32 : PRECISION_FP32;
}

static int open_devices(struct trainer *t, struct err *err)
{
    struct device_options opt = { t->spec->run_threads > 0 ? (int)t->spec->run_threads : 0, t->spec->run_isa,
                                  precision_of(t->spec->run_precision) };
    int rc = t->opt.backend->open(0, &opt, &t->dev, err);

    opt.threads = 1;
    if (rc >= 0)
        rc = t->opt.backend->open(0, &opt, &t->side, err);
    if (rc >= 0)
        rc = t->opt.backend->open(0, &opt, &t->carrier, err);
    return rc;
}

static int open_machine(struct trainer *t, struct err *err)
{
    struct comm_options comm = { t->opt.comm_fd, t->opt.rank, t->opt.nranks, COMM_TIMEOUT_MS, { on_collective, t }, NULL };
    char link_id[REPORT_ID];
    int rc = progress_open(t->opt.progress_fd, &t->progress, err);

    if (rc >= 0)
        rc = report_open(t->opt.control_fd, t->opt.rank, t->opt.local_rank, t->opt.nranks, &t->report, err);
    if (rc < 0)
        return rc;
    report_on_wait(t->report, on_wait, t);
    rc = open_devices(t, err);
    if (rc >= 0)
        rc = greet(t, link_id, err);
    if (rc >= 0)
        rc = comm_open_shm(&comm, &t->comm, err);
    return rc < 0 ? rc : open_link(t, &comm, link_id, err);
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
    int n = t->dev->host_memory ? threads(t) / 4 : threads(t) - 1;

    if (t->spec->data_workers > 0)
        return (int)t->spec->data_workers;
    if (!t->dev->host_memory && n > GPU_WORKERS)
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
    return report_data(t->report, split, d->nimages, d->offset[d->nimages], p->count, nbad, bad, err);
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
        rc = comm_barrier(t->comm, COMM_SYNC, err);
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

    progress_phase(t->progress, PHASE_CHECK_DATA);
    rc = open_split(t, "train", s->data_train_annotations, s->data_train_images, &t->train, err);
    if (rc < 0 || !s->data_val_annotations)
        return rc;
    rc = open_split(t, "val", s->data_val_annotations, s->data_val_images, &t->val, err);
    return rc < 0 ? rc : same_classes(t->train, t->val, err);
}

struct scales trainer_scales(const struct trainer *t)
{
    const struct jobspec *s = t->spec;
    bool multi = s->data_augment_multiscale;
    int side = canvas_long_side(t->model->canvas);
    struct scales z = { t->model->canvas, multi && s->data_augment_size_min > 0 ? (int)s->data_augment_size_min : side,
                        multi && s->data_augment_size_max > 0 ? (int)s->data_augment_size_max : side, JOB_SIZE_GRAIN, t->model->grain };

    while (z.apart % t->model->grain)
        z.apart += JOB_SIZE_GRAIN;
    return z;
}

static int open_feed(struct trainer *t, struct loader *loader, struct feed **ret_feed, struct err *err)
{
    *ret_feed = feed_open(t->dev, t->carrier, loader);
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
        .shard_lo = t->shards.lo,
        .shard_hi = t->shards.hi,
        .waves = (int)s->train_waves,
        .first_step = t->step + 1,
        .steps = s->train_steps,
        .scales = trainer_scales(t),
        .augment = { (float)s->data_augment_flip, (float)s->data_augment_vflip, (float)s->data_augment_jitter, (float)s->data_augment_scale,
                     (float)s->data_augment_hue, (float)s->data_augment_saturation, (float)s->data_augment_exposure },
        .on_bad = strcmp(s->data_on_bad, "skip") == 0 ? BAD_SKIP : BAD_ERROR,
        .dev = t->dev,
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

/* What the optimizer step keeps of every trainable parameter. */
static int open_update(struct trainer *t, struct err *err)
{
    const struct model *m = t->model;
    int rc = t->spec->train_ema > 0 ? ema_open(t->dev, m->params, m->nparams, &t->ema, err) : 0;

    if (rc < 0)
        return rc;
    t->momentum = calloc((size_t)m->nparams, sizeof *t->momentum);
    t->update = calloc((size_t)m->nparams, sizeof *t->update);
    t->skip = t->dev->ops->alloc(t->dev, sizeof *t->skip);
    if (!t->momentum || !t->update || !t->skip)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < m->nparams; i++) {
        if (!param_trainable(m->params[i]))
            continue;
        t->momentum[i] = t->dev->ops->alloc(t->dev, m->params[i]->count * sizeof(float));
        if (!t->momentum[i])
            return err_set(err, ERR_DEVICE, "out of memory: momentum of %s", m->params[i]->name);
        t->update[t->nupdates++] = (struct sgd_item){ .param = m->params[i], .momentum = t->momentum[i], .ema = ema_other(t->ema, i) };
    }
    return 0;
}

/* Records of so many doubles, one a shard, in device memory. Gathered once, as they are: ranks connect with the first, which later could wait for
 * the gradients'. */
static int open_device_gather(struct trainer *t, size_t doubles, struct gather **ret, struct err *err)
{
    const struct gather_options o = {
        .comm = t->link, .nrecords = (int)t->spec->train_shards, .buffers = 2, .record_bytes = doubles * sizeof(double)
    };
    int rc = gather_open(&o, ret, err);

    return rc < 0 || t->dev->host_memory ? rc : gather_all(*ret, err);
}

/* Where the numbers of a step that all ranks need lie: losses, batch statistics, SyncBN's. */
static int open_gathers(struct trainer *t, struct err *err)
{
    const struct model *m = t->model;
    const struct gather_options losses = { .comm = t->comm,
                                           .nrecords = (int)t->spec->train_shards,
                                           .buffers = 2,
                                           .record_bytes = 2 * (size_t)m->ops->nterms * sizeof(double),
                                           .head_bytes = CONTROL_WORDS * sizeof(uint64_t) };
    size_t raw = (size_t)(t->shards.hi - t->shards.lo) * m->raw_terms * sizeof(double);
    int rc = running_open(&t->running, m->norms, m->nnorms, err);

    if (rc < 0)
        return rc;
    t->raw = t->dev->ops->alloc(t->dev, raw);
    t->raw_host = t->dev->ops->host_alloc(t->dev, raw);
    t->raw_sent = t->dev->ops->mark_new(t->dev);
    if (!t->raw || !t->raw_host || !t->raw_sent)
        return err_set(err, ERR_DEVICE, "out of memory: losses");
    rc = gather_open(&losses, &t->losses, err);
    if (rc >= 0)
        rc = open_device_gather(t, t->running.doubles, &t->stats, err);
    return rc < 0 ? rc : open_device_gather(t, t->running.widest, &t->sync, err);
}

static int open_model(struct trainer *t, struct err *err)
{
    const struct jobspec *s = t->spec;
    struct gradients_options r = { .nshards = (int)s->train_shards, .nwaves = (int)s->train_waves };
    int rc = model_open(s, t->train->nclasses, t->dev, &t->model, err);

    if (rc < 0)
        return rc;
    r.dev = t->dev;
    r.side = t->side;
    r.comm = t->link;
    t->arena = arena_new(t->dev, t->dev->host_memory ? arena_chunk : gpu_arena_chunk);
    t->tape = t->arena ? tape_new(t->dev, t->arena, t->model->nparams) : NULL;
    if (!t->tape)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = gradients_open(&r, t->model->params, t->model->nparams, &t->gradients, err);
    if (rc >= 0)
        rc = open_gathers(t, err);
    return rc < 0 ? rc : open_update(t, err);
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
    t->shards = rank_shards(opt->rank, opt->nranks, (int)spec->train_shards);
    rc = open_machine(t, err);
    if (rc >= 0)
        rc = open_data(t, err);
    if (rc >= 0)
        rc = open_model(t, err);
    if (rc < 0)
        return rc;
    window_reset(&t->window, t->model->ops->nterms);
    progress_phase(t->progress, PHASE_LOAD);
    rc = trainer_resume(t, err);
    if (rc >= 0 && opt->rank == 0 && t->step == 0 && t->model->loaded[0])
        rc = report_event(t->report, err, "info", "init", "%s", t->model->loaded);
    return rc < 0 ? rc : open_loaders(t, err);
}

void trainer_close(struct trainer *t)
{
    free(t->shapes);
    feed_close(t->feed);
    feed_close(t->val_feed);
    loader_close(t->loader);
    loader_close(t->val_loader);
    for (int i = 0; t->momentum && i < t->model->nparams; i++)
        t->dev->ops->free(t->dev, t->momentum[i]);
    free(t->momentum);
    ema_close(t->ema);
    free(t->update);
    running_close(&t->running);
    if (t->skip)
        t->dev->ops->free(t->dev, t->skip);
    if (t->raw)
        t->dev->ops->free(t->dev, t->raw);
    if (t->raw_host)
        t->dev->ops->host_free(t->dev, t->raw_host);
    if (t->raw_sent)
        t->dev->ops->mark_free(t->dev, t->raw_sent);
    gather_close(t->losses);
    gather_close(t->stats);
    gather_close(t->sync);
    gather_close(t->val_losses);
    gradients_close(t->gradients);
    tape_free(t->tape);
    arena_free(t->arena);
    model_free(t->model);
    dataset_free(t->train);
    dataset_free(t->val);
    if (t->link != t->comm)
        comm_close(t->link);
    comm_close(t->comm);
    if (t->carrier)
        t->carrier->ops->close(t->carrier);
    if (t->side)
        t->side->ops->close(t->side);
    if (t->dev)
        t->dev->ops->close(t->dev);
    report_close(t->report);
    progress_close(t->progress);
    json_decref(t->identity);
}
