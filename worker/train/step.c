#include "worker/train/step.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/host/clock.h"
#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/comm.h"
#include "worker/core/device.h"
#include "worker/data/set/dataset.h"
#include "worker/data/loader.h"
#include "worker/evidence/recorder.h"
#include "worker/gradients/gradients.h"
#include "worker/layers/layers.h"
#include "worker/layers/tape.h"
#include "worker/models/model.h"
#include "worker/ops/optim.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/schedule.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/control.h"
#include "worker/train/course.h"
#include "worker/train/feed.h"
#include "worker/train/losses.h"
#include "worker/train/machine.h"
#include "worker/train/nonfinite.h"
#include "worker/train/rows.h"
#include "worker/train/shapes.h"
#include "worker/train/splits.h"
#include "worker/train/statistics.h"
#include "worker/train/trainer.h"

enum { SKIPS_MAX = 3 }; /* steps in a row without a finite gradient; the last of them ends the job */

/* Head of the message with the losses of the step before. The recorder's bytes follow. */
struct head {
    uint64_t control[CONTROL_WORDS];
    int64_t objects; /* model_ops.objects() of this rank's shards in this step */
};

struct stepper {
    struct stepper_options opt;
    const struct jobspec *spec;
    struct gradients *gradients;
    struct losses *losses;
    struct statistics *statistics;
    struct recorder *recorder;
    struct shapes *shapes;  /* shapes that the device was told to expect */
    bool unread;            /* losses and gradient check of the last step are on their way; skips and window lack them */
    int64_t judged;         /* last step with its losses in the window */
    int64_t window_ns;      /* start of the log window */
    int64_t window_resumed; /* images in it from an earlier attempt */
    int64_t images_rank;    /* images trained by this rank in this attempt */
    int64_t objects;        /* model_ops.objects() of this rank's shards, in the waves of this step so far */
    double weight;          /* of this step's gradient */
};

/* ---- how gradients and statistics leave a wave ---- */

struct wave {
    struct stepper *t;
    struct span shards;
};

static float *grad_dest(void *arg, const struct param *p, int shard, bool *ret_written)
{
    const struct wave *w = arg;

    return gradients_dest(w->t->gradients, p, shard, ret_written);
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    const struct wave *w = arg;

    return gradients_ready(w->t->gradients, p, err);
}

static double *stats_dest(void *arg, int index, int use, int shard)
{
    const struct wave *w = arg;

    return statistics_dest(w->t->statistics, index, use, w->shards.lo + shard);
}

static int merge(void *arg, enum merge_kind kind, const double *const *local, int n, double *ret, struct err *err)
{
    const struct wave *w = arg;
    struct stepper *t = w->t;
    int rc;

    progress_phase(t->opt.machine->progress, PHASE_SYNC);
    rc = statistics_merge(t->statistics, kind, w->shards, local, n, ret, err);
    progress_phase(t->opt.machine->progress, kind == MERGE_MOMENTS ? PHASE_FORWARD : PHASE_BACKWARD);
    return rc;
}

/* ---- a wave ---- */

static int run_wave(struct stepper *t, const struct batch *b, struct err *err)
{
    struct wave w = { t, { b->shard[0].shard, b->shard[0].shard + b->nshards } };
    struct tape_hooks hooks = { &w, grad_dest, grad_ready, stats_dest, merge };
    struct model *m = t->opt.model;
    double *raw[JOB_MAX_SHARDS];
    const struct model_want want = { .raw = raw,
                                     .images_of_step = (int)t->spec->train_batch,
                                     .shards_of_step = (int)t->spec->train_shards };
    int rc;

    tape_begin(t->opt.tape, TAPE_TRAIN, b->nshards, &hooks);
    gradients_wave(t->gradients, b->wave);
    for (int s = 0; s < b->nshards; s++)
        raw[s] = losses_raw(t->losses, b->shard[s].shard);
    progress_phase(t->opt.machine->progress, PHASE_FORWARD);
    rc = m->ops->forward(m, t->opt.tape, b, &want, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < m->nnorms; i++)
        assert(m->norms[i].frozen || tape_norm_uses(t->opt.tape, i) == m->norms[i].uses); /* every record was written in full */
    progress_phase(t->opt.machine->progress, PHASE_BACKWARD);
    rc = tape_backward(t->opt.tape, m->params, m->nparams, err);
    for (int s = 0; s < b->nshards; s++)
        t->images_rank += b->shard[s].n;
    return rc;
}

static void count_objects(struct stepper *t, const struct batch *b)
{
    const struct model *m = t->opt.model;
    const struct shard_batch *host = feed_host(t->opt.train->feed);

    for (int s = 0; m->ops->objects && s < b->nshards; s++)
        t->objects += m->ops->objects(m, b->form, &host[s]);
}

static int all_waves(struct stepper *t, struct err *err)
{
    struct batch b = { 0 };

    t->objects = 0;
    gradients_begin(t->gradients);
    while (!b.last) {
        int rc;

        progress_phase(t->opt.machine->progress, PHASE_DATA);
        rc = feed_next(t->opt.train->feed, &b, err);
        if (rc >= 0) {
            recorder_batch(t->recorder, &b);
            count_objects(t, &b);
            rc = run_wave(t, &b, err);
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the result of the last step: t->opt.state->step ---- */

/* row: the terms of that shard. */
static int blame(const struct stepper *t, int shard, const double *row, struct err *err)
{
    const struct model *m = t->opt.model;
    int64_t step = t->opt.state->step;
    int rc = nonfinite_loss(t->opt.course, t->opt.train->task, t->opt.train->set, step, shard,
                            m->terms[window_nonfinite(row, m->nterms)].name, schedule_lr(t->spec, step), err);

    return rc == ERR_NONFINITE ? model_explain(m, row, err) : rc;
}

static int check_finite(struct stepper *t, struct err *err)
{
    const double *row;
    int shard = losses_nonfinite(t->losses, &row);

    return shard < 0 ? 0 : blame(t, shard, row, err);
}

/* A step without a finite gradient is skipped, since an unlucky batch must not end a long job. After SKIPS_MAX such
 * steps in a row the job ends: the weights do not recover. */
static int tell_skip(struct stepper *t, struct err *err)
{
    int64_t step = t->opt.state->step;

    if (t->opt.state->skips >= SKIPS_MAX)
        return nonfinite_gradient(t->opt.machine->dev, t->gradients, t->opt.model->params, t->opt.model->nparams, step, SKIPS_MAX,
                                  schedule_lr(t->spec, step), err);
    if (t->opt.course->rank != 0)
        return 0;
    return report_event(t->opt.machine->report, err, "warning", "gradient", "step %lld: the gradient is not finite, the step is skipped",
                        (long long)step);
}

/* The losses of the step must be gathered. sums: over all shards. */
static int record(struct stepper *t, const double *sums, bool skipped, struct err *err)
{
    const void *heads[JOB_MAX_RANKS];
    const double *losses[JOB_MAX_SHARDS];
    int64_t step = t->opt.state->step;
    const struct recorder_step s = { .step = step,
                                     .heads = heads,
                                     .losses = losses,
                                     .state = t->opt.state,
                                     .loss = sums[0] / fmax(1, sums[1]),
                                     .lr = schedule_lr(t->spec, step),
                                     .tier = control_tier_at(t->opt.control, step),
                                     .skipped = skipped };

    for (int q = 0; q < t->opt.course->nranks; q++)
        heads[q] = (const struct head *)losses_read_head(t->losses, q) + 1;
    losses_rows(t->losses, losses);
    return recorder_step(t->recorder, &s, err);
}

/* The losses of the step must be gathered. */
static int judge(struct stepper *t, struct err *err)
{
    double sums[2 * WINDOW_MAX_TERMS];
    struct clip found;
    int rc = check_finite(t, err);

    t->unread = false;
    if (rc >= 0)
        rc = optimizer_found(t->opt.optimizer, &found, err);
    if (rc >= 0)
        rc = comm_check(t->opt.machine->link, COMM_GRAD, err);
    if (rc < 0)
        return rc;
    losses_sum(t->losses, sums);
    window_add(&t->opt.state->window, sums, t->spec->train_batch);
    t->judged = t->opt.state->step;
    t->opt.state->skips = found.skip ? t->opt.state->skips + 1 : 0;
    rc = record(t, sums, found.skip, err);
    return rc < 0 || !found.skip ? rc : tell_skip(t, err);
}

/* ---- the update ---- */

static int update(struct stepper *t, struct err *err)
{
    float lr = schedule_lr(t->spec, t->opt.state->step + 1);
    int rc;

    progress_phase(t->opt.machine->progress, PHASE_OPTIMIZER);
    rc = optimizer_step(t->opt.optimizer, t->gradients, t->weight, lr, t->opt.state->step + 1, err);
    if (rc >= 0)
        rc = statistics_update(t->statistics, (float)t->spec->model_bn_momentum, optimizer_skip(t->opt.optimizer), err);
    if (rc >= 0)
        rc = recorder_send(t->recorder, err);
    return rc < 0 ? rc : recorder_write(t->recorder, err);
}

/* Puts the losses and evidence of the last step into the records of the next gather. */
static int take(struct stepper *t, struct err *err)
{
    int rc = losses_take(t->losses, err);

    return rc < 0 ? rc : recorder_take(t->recorder, t->opt.state->step, (struct head *)losses_head(t->losses) + 1, err);
}

/* Reads the parts of the heads that are about this step. The sum of integers has no order, so the weight has the same
 * bits for any number of ranks and waves. */
static void read_heads(struct stepper *t)
{
    const struct head *first = losses_read_head(t->losses, 0);
    struct control_word word = control_unpack(first->control);
    int64_t objects = 0;

    for (int q = 0; q < t->opt.course->nranks; q++)
        objects += ((const struct head *)losses_read_head(t->losses, q))->objects;
    t->weight = t->opt.model->ops->objects ? (double)t->spec->train_batch / (double)(objects > 1 ? objects : 1) : 1;
    control_take(t->opt.control, t->opt.state->step + 1, &word);
}

/* Sends this step's losses to the host, and gathers the losses of the step before, together with this step's control
 * word and number of objects. The device has finished the step before. So the host waits for the other ranks, but not
 * for device work of this step. */
static int gather_step(struct stepper *t, struct err *err)
{
    struct control_word word = { WORD_NONE, 0, 0 };
    struct head *head;
    int rc = statistics_gather(t->statistics, err);

    progress_phase(t->opt.machine->progress, PHASE_REDUCE); /* from here on it waits for other ranks */
    if (rc >= 0 && t->unread)
        rc = take(t, err);
    if (rc >= 0)
        rc = losses_send(t->losses, err);
    if (rc >= 0 && t->opt.course->rank == 0)
        rc = control_poll(t->opt.control, t->opt.state->step + 1, &word, err);
    head = losses_head(t->losses);
    control_pack(&word, head->control);
    head->objects = t->objects;
    feed_ahead(t->opt.train->feed); /* while the device computes the waves */
    if (rc >= 0)
        rc = losses_gather(t->losses, err); /* while the last gradients are reduced */
    if (rc >= 0)
        read_heads(t);
    if (rc >= 0 && t->unread)
        rc = judge(t, err);
    progress_phase(t->opt.machine->progress, PHASE_REDUCE); /* judge() may have waited for a report */
    return rc < 0 ? rc : gradients_wait(t->gradients, err);
}

/* Finds the first cause of a failure before the losses of the last step were judged. If the communication thread
 * failed, it has aborted the comm, and this thread may see the abort first: then the thread's error counts. A loss that
 * is not finite came before any later failure. Other ranks with such a loss cannot be asked any more; they fail as well
 * and report it themselves. */
static int reason(struct stepper *t, int rc, struct err *err)
{
    struct err why;
    int first = rc == ERR_ABORTED ? gradients_state(t->gradients, &why) : 0, shard;
    const double *row;

    if (first < 0 && first != ERR_ABORTED) {
        *err = why;
        rc = first;
    }
    shard = t->unread ? losses_own_nonfinite(t->losses, &row) : -1;
    if (shard < 0 || blame(t, shard, row, &why) != ERR_NONFINITE)
        return rc;
    *err = why;
    return ERR_NONFINITE;
}

int stepper_run(struct stepper *t, struct err *err)
{
    int64_t began;
    int rc;

    t->opt.machine->dev->ops->set_tier(t->opt.machine->dev, control_tier_at(t->opt.control, t->opt.state->step + 1));
    began = clock_ns();
    rc = shapes_ready(t->shapes, t->opt.state->step + 1, err);
    if (t->window_ns == 0) { /* a resumed window holds images trained before */
        t->window_ns = clock_ns();
        t->window_resumed = t->opt.state->window.images;
    } else {
        t->window_ns += clock_ns() - began; /* the time for planning does not count as training */
    }
    if (rc >= 0)
        rc = all_waves(t, err);
    if (rc >= 0)
        rc = gather_step(t, err);
    if (rc >= 0)
        rc = update(t, err);
    if (rc < 0)
        return reason(t, rc, err);
    feed_ahead(t->opt.train->feed); /* if its batch was not decoded before */
    t->opt.state->step++;
    t->unread = true;
    progress_step(t->opt.machine->progress, (uint64_t)t->opt.state->step);
    progress_images(t->opt.machine->progress, (uint64_t)t->images_rank, (uint64_t)(t->opt.state->step * t->spec->train_batch));
    return t->opt.state->skips == SKIPS_MAX - 1 ? stepper_settle(t, err) : 0; /* if this step ends the job, its gradient is still there */
}

int stepper_settle(struct stepper *t, struct err *err)
{
    const struct control_word none = { WORD_NONE, 0, 0 };
    int rc;

    if (!t->unread)
        return 0;
    progress_phase(t->opt.machine->progress, PHASE_REDUCE);
    rc = take(t, err);
    control_pack(&none, ((struct head *)losses_head(t->losses))->control);
    if (rc >= 0)
        rc = losses_gather(t->losses, err);
    progress_phase(t->opt.machine->progress, PHASE_OPTIMIZER);
    if (rc >= 0)
        rc = judge(t, err);
    if (rc >= 0)
        rc = recorder_write(t->recorder, err);
    return rc < 0 ? reason(t, rc, err) : 0;
}

static double images_per_s(const struct stepper *t)
{
    return (double)(t->opt.state->window.images - t->window_resumed) / ((double)(clock_ns() - t->window_ns) * 1e-9);
}

void stepper_log_rest(const struct stepper *t, int64_t saved)
{
    const struct window *w = &t->opt.state->window;
    struct err ignored; /* the run has failed already */

    if (t->opt.course->rank == 0 && w->images > 0 && t->judged > saved)
        rows_report(t->opt.rows, "train", t->judged, w, images_per_s(t), &ignored);
}

int stepper_log(struct stepper *t, struct err *err)
{
    struct window *w = &t->opt.state->window;
    int rc = t->opt.course->rank == 0 ? rows_report(t->opt.rows, "train", t->opt.state->step, w, images_per_s(t), err) : 0;

    window_reset(w, w->nterms);
    t->window_ns = 0;
    return rc;
}

/* ---- opening ---- */

static int open_gradients(struct stepper *t, struct err *err)
{
    const struct gradients_options o = { .dev = t->opt.machine->dev,
                                         .side = t->opt.machine->side,
                                         .comm = t->opt.machine->link,
                                         .nshards = t->opt.course->shards,
                                         .nwaves = t->opt.course->waves,
                                         .hashes = strcmp(t->spec->run_evidence, "tensors") == 0 };

    return gradients_open(&o, t->opt.model->params, t->opt.model->nparams, &t->gradients, err);
}

static int open_recorder(struct stepper *t, struct err *err)
{
    const struct machine *m = t->opt.machine;
    const struct recorder_options o = { .spec = t->spec,
                                        .dev = m->dev,
                                        .model = t->opt.model,
                                        .gradients = t->gradients,
                                        .optimizer = t->opt.optimizer,
                                        .report = m->report,
                                        .job_dir = m->opt->job_dir,
                                        .data = hash_fold(t->opt.train->hash, t->opt.val->hash),
                                        .rank = t->opt.course->rank,
                                        .nranks = t->opt.course->nranks,
                                        .attempt = m->opt->attempt,
                                        .shards = t->opt.course->shards };

    return recorder_open(&o, &t->recorder, err);
}

/* Opens the results of a step besides gradients: losses and batch statistics. */
static int open_numbers(struct stepper *t, struct err *err)
{
    const struct losses_options losses = { .dev = t->opt.machine->dev,
                                           .comm = t->opt.machine->comm,
                                           .link = t->opt.machine->link,
                                           .model = t->opt.model,
                                           .shards = t->opt.course->shards,
                                           .images = t->opt.course->images,
                                           .head_bytes = sizeof(struct head) + recorder_bytes(t->recorder) };
    const struct statistics_options statistics = { .dev = t->opt.machine->dev,
                                                   .link = t->opt.machine->link,
                                                   .model = t->opt.model,
                                                   .shards = t->opt.course->shards,
                                                   .waves = t->opt.course->waves };
    int rc = losses_open(&losses, &t->losses, err);

    return rc < 0 ? rc : statistics_open(&statistics, &t->statistics, err);
}

static int open_shapes(struct stepper *t, struct err *err)
{
    const struct shapes_options o = {
        .machine = t->opt.machine,
        .model = t->opt.model,
        .course = t->opt.course,
        .control = t->opt.control,
        .train = t->opt.train->task,
        .val = t->opt.val->task,
        .val_batch = (int)t->spec->val_batch,
        .val_every = t->spec->val_every,
    };

    t->shapes = shapes_new(&o);
    return t->shapes ? 0 : err_set(err, ERR_DEVICE, "out of memory");
}

int stepper_open(const struct stepper_options *opt, struct stepper **ret_stepper, struct err *err)
{
    struct stepper *t = calloc(1, sizeof *t);
    int rc;

    if (!t)
        return err_set(err, ERR_DEVICE, "out of memory");
    t->opt = *opt;
    t->spec = opt->machine->spec;
    rc = open_gradients(t, err);
    if (rc >= 0)
        rc = open_recorder(t, err);
    if (rc >= 0)
        rc = open_numbers(t, err);
    if (rc >= 0)
        rc = open_shapes(t, err);
    if (rc < 0) {
        stepper_close(t);
        return rc;
    }
    *ret_stepper = t;
    return 0;
}

struct recorder *stepper_recorder(const struct stepper *t)
{
    return t->recorder;
}

void stepper_close(struct stepper *t)
{
    if (!t)
        return;
    shapes_free(t->shapes);
    losses_close(t->losses);
    statistics_close(t->statistics);
    recorder_close(t->recorder);
    gradients_close(t->gradients);
    free(t);
}
