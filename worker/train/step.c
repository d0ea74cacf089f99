/* worker/train/step.c - one optimizer step of this rank, in lockstep with all others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/core/tape.h"
#include "worker/core/tree.h"
#include "worker/data/loader.h"
#include "worker/data/sampler.h"
#include "worker/layers/layers.h"
#include "worker/models/model.h"
#include "worker/train/progress.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer_impl.h"

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* ---- how gradients and statistics leave a wave ---- */

struct wave {
    struct trainer *t;
    const struct batch *batch;
};

static double *shard_record(const struct wave *w, int local)
{
    return slots_record(w->t->slots, w->batch->shard[local].shard);
}

static float *grad_dest(void *arg, const struct param *p, int shard)
{
    const struct wave *w = arg;

    return reduce_dest(w->t->reduce, p, shard);
}

static int grad_ready(void *arg, const struct param *p, struct err *err)
{
    const struct wave *w = arg;

    return reduce_ready(w->t->reduce, p, err);
}

/* Where the statistics of normalisation `index` stand in a record. */
static size_t stats_offset(const struct model *m, int index)
{
    size_t at = 2 * (size_t)m->ops->nterms;

    for (int i = 0; i < index; i++)
        at += 2 * m->norms[i].mean->count + 1;
    return at;
}

static int take_stats(void *arg, int index, const double *const *stats, int c, struct err *err)
{
    const struct wave *w = arg;
    struct device *dev = w->t->dev;
    size_t at = stats_offset(w->t->model, index);
    int rc = 0;

    for (int s = 0; s < w->batch->nshards && rc >= 0; s++)
        rc = dev->ops->download(dev, shard_record(w, s) + at, stats[s], ((size_t)c * 2 + 1) * sizeof(double), err);
    return rc;
}

/* SyncBN: the same numbers of all shards of the job, merged in tree order by every rank. */
static int merge(void *arg, enum merge_kind kind, const double *const *local, int n, double *ret, struct err *err)
{
    const struct wave *w = arg;
    struct trainer *t = w->t;
    struct device *dev = t->dev;
    double *merged = malloc((size_t)n * sizeof *merged);
    const double *all[JOB_MAX_SHARDS];
    int rc = merged ? 0 : err_set(err, ERR_DEVICE, "out of memory: SyncBN");

    for (int s = 0; s < w->batch->nshards && rc >= 0; s++)
        rc = dev->ops->download(dev, slots_record(t->sync, w->batch->shard[s].shard), local[s], (size_t)n * sizeof(double), err);
    progress_phase(t->progress, PHASE_SYNC);
    if (rc >= 0)
        rc = slots_exchange(t->sync, err);
    progress_phase(t->progress, kind == MERGE_MOMENTS ? PHASE_FORWARD : PHASE_BACKWARD);
    if (rc >= 0)
        slots_rows(t->sync, 0, 0, all);
    if (rc >= 0 && kind == MERGE_MOMENTS)
        tree_moments(merged, all, (int)t->spec->train_shards, (n - 1) / 2);
    else if (rc >= 0)
        tree_sum_rows(merged, all, (int)t->spec->train_shards, (size_t)n);
    if (rc >= 0)
        rc = dev->ops->upload(dev, ret, merged, (size_t)n * sizeof *merged, err);
    free(merged);
    return rc;
}

/* ---- a wave ---- */

static int upload_list(struct trainer *t, const struct box_list *from, int images, struct box_list *ret, struct err *err)
{
    struct device *dev = t->dev;
    size_t rows = (size_t)from->rows;
    int32_t *offset = tape_device_mem(t->tape, ((size_t)images + 1) * sizeof *offset, "boxes");
    int32_t *cls = tape_device_mem(t->tape, rows * sizeof *cls, "boxes");
    float *box = tape_device_mem(t->tape, rows * 4 * sizeof *box, "boxes");
    int rc = tape_status(t->tape, err);

    if (rc >= 0)
        rc = dev->ops->upload(dev, offset, from->offset, ((size_t)images + 1) * sizeof *offset, err);
    if (rc >= 0 && rows > 0)
        rc = dev->ops->upload(dev, cls, from->cls, rows * sizeof *cls, err);
    if (rc >= 0 && rows > 0)
        rc = dev->ops->upload(dev, box, from->box, rows * 4 * sizeof *box, err);
    *ret = (struct box_list){ offset, cls, box, from->rows };
    return rc;
}

int trainer_upload(struct trainer *t, const struct batch *b, struct model_batch *ret, struct err *err)
{
    struct tensor *images = tape_host(t->tape, (size_t)b->nshards * sizeof *images);
    struct box_list *truth = tape_host(t->tape, (size_t)b->nshards * sizeof *truth);
    size_t count = 0, done = 0;
    float *mem;
    int rc = 0;

    for (int s = 0; s < b->nshards; s++)
        count += (size_t)b->shard[s].n * (size_t)b->size * (size_t)b->size * 3;
    mem = tape_device_mem(t->tape, count * sizeof *mem, "images");
    if (!mem)
        return tape_status(t->tape, err);
    for (int s = 0; s < b->nshards && rc >= 0; s++) {
        images[s] = tensor_f32(mem + done, b->shard[s].n, b->size, b->size, 3);
        rc = t->dev->ops->upload(t->dev, images[s].data, b->shard[s].image, tensor_count(&images[s]) * sizeof *mem, err);
        done += tensor_count(&images[s]);
        if (rc >= 0)
            rc = upload_list(t, &b->shard[s].truth, b->shard[s].n, &truth[s], err);
    }
    *ret = (struct model_batch){ images, truth };
    return rc;
}

static int run_wave(struct trainer *t, const struct batch *b, struct err *err)
{
    struct wave w = { t, b };
    struct tape_hooks hooks = { &w, grad_dest, grad_ready, take_stats, merge };
    struct model *m = t->model;
    struct model_batch mb;
    double *terms[JOB_MAX_SHARDS];
    int rc;

    tape_begin(t->tape, TAPE_TRAIN, b->nshards, &hooks);
    reduce_wave(t->reduce, b->wave);
    for (int s = 0; s < b->nshards; s++)
        terms[s] = shard_record(&w, s);
    progress_phase(t->progress, PHASE_FORWARD);
    rc = trainer_upload(t, b, &mb, err);
    if (rc >= 0)
        rc = m->ops->loss(m, t->tape, &mb, 1.0f / (float)t->spec->train_batch, terms, err);
    if (rc < 0)
        return rc;
    for (int s = 0; s < b->nshards; s++)
        window_record(m->ops->terms, m->ops->nterms, terms[s]);
    progress_phase(t->progress, PHASE_BACKWARD);
    return tape_backward(t->tape, m->params, m->nparams, err);
}

static int all_waves(struct trainer *t, struct err *err)
{
    struct batch b = { 0 };

    reduce_begin(t->reduce);
    while (!b.last) {
        int rc;

        progress_phase(t->progress, PHASE_DATA);
        rc = loader_next(t->loader, &b, err);
        if (rc >= 0)
            rc = run_wave(t, &b, err);
        if (rc < 0)
            return rc;
        for (int s = 0; s < b.nshards; s++)
            t->images_rank += b.shard[s].n;
    }
    return 0;
}

/* ---- the update ---- */

/* Names the images of a shard, up to a few: pure, so rank 0 can name those of any rank. */
static int nonfinite(struct trainer *t, int shard, int term, struct err *err)
{
    struct sampler *sampler;
    int per_shard = (int)(t->spec->train_batch / t->spec->train_shards), rc;
    char text[256] = "";

    rc = sampler_new((uint64_t)t->spec->train_seed, t->train->nimages, &sampler, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < per_shard && i < 8; i++) {
        struct draw d = sampler_at(sampler, stream_position(t->step + 1, t->spec->train_batch, (int)t->spec->train_shards, shard, i));
        size_t used = strlen(text);

        snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", t->train->images[d.sample].file);
    }
    sampler_free(sampler);
    return err_set(err, ERR_NONFINITE, "step %lld: loss term '%s' of shard %d is not finite (learning rate %g; images %s)",
                   (long long)t->step + 1, t->model->ops->terms[term].name, shard, (double)schedule_lr(t->spec, t->step + 1), text);
}

static int check_finite(struct trainer *t, struct err *err)
{
    for (int v = 0; v < t->spec->train_shards; v++) {
        int term = window_nonfinite(slots_read(t->slots, 0, v), t->model->ops->nterms);

        if (term >= 0)
            return nonfinite(t, v, term, err);
    }
    return 0;
}

static int update_params(struct trainer *t, float scale, struct err *err)
{
    const struct jobspec *s = t->spec;
    int rc = 0;

    for (int i = 0; i < t->model->nparams && rc >= 0; i++) {
        struct param *p = t->model->params[i];
        struct sgd sgd = { schedule_lr(s, t->step + 1), (float)s->train_momentum, p->kind == PARAM_CONV ? (float)s->train_weight_decay : 0,
                           scale };

        if (!t->momentum[i])
            continue;
        rc = t->dev->ops->sgd_step(t->dev, p->data, t->momentum[i], reduce_grad(t->reduce, p), p->count, &sgd, t->skip, err);
        p->version++;
    }
    return rc;
}

static int update_running(struct trainer *t, struct err *err)
{
    const struct model *m = t->model;
    const double *stats[JOB_MAX_SHARDS];
    int rc = 0;

    for (int i = 0; i < m->nnorms && rc >= 0; i++) {
        const struct norm *n = &m->norms[i];

        if (n->frozen)
            continue;
        slots_rows(t->slots, 0, stats_offset(m, i), stats);
        rc = t->dev->ops->norm_running(t->dev, n->mean->data, n->var->data, stats, (int)t->spec->train_shards,
                                       (float)t->spec->model_bn_momentum, (int)n->mean->count, t->skip, err);
        n->mean->version++;
        n->var->version++;
    }
    return rc;
}

static int update(struct trainer *t, struct err *err)
{
    double square = reduce_square_norm(t->reduce), norm = sqrt(square);
    int32_t skip = !isfinite(square);
    float scale = t->spec->train_clip_norm > 0 && norm > t->spec->train_clip_norm ? (float)(t->spec->train_clip_norm / norm) : 1;
    int rc = t->dev->ops->upload(t->dev, t->skip, &skip, sizeof skip, err);

    progress_phase(t->progress, PHASE_OPTIMIZER);
    if (rc >= 0 && skip && t->opt.rank == 0)
        rc = report_event(t->report, err, "warning", "gradient", "step %lld: the gradient is not finite, the step is skipped",
                          (long long)t->step + 1);
    if (rc >= 0)
        rc = update_params(t, scale, err);
    return rc < 0 ? rc : update_running(t, err);
}

static int exchange(struct trainer *t, struct err *err)
{
    struct control_word word = { WORD_NONE, 0, 0 };
    const uint64_t *words;
    uint64_t *mine = slots_words(t->slots);
    int rc = 0;

    if (t->opt.rank == 0)
        rc = control_poll(t, &word, err);
    mine[0] = word.word;
    mine[1] = word.tier;
    mine[2] = word.step;
    mine[3] = 0;
    progress_phase(t->progress, PHASE_REDUCE);
    if (rc >= 0)
        rc = reduce_wait(t->reduce, err);
    if (rc >= 0)
        rc = slots_exchange(t->slots, err);
    if (rc < 0)
        return rc;
    words = slots_read_words(t->slots, 0, 0);
    word = (struct control_word){ (enum report_word)words[0], words[1], words[2] };
    control_take(t, &word);
    return rc;
}

int trainer_step(struct trainer *t, struct err *err)
{
    const struct model_ops *ops = t->model->ops;
    double sums[2 * WINDOW_MAX_TERMS];
    int rc;

    if (t->window.images == 0 || t->window_ns == 0) { /* a resumed window has images that were trained before */
        t->window_ns = now_ns();
        t->window_resumed = t->window.images;
    }
    rc = all_waves(t, err);
    if (rc >= 0)
        rc = exchange(t, err);
    if (rc >= 0)
        rc = check_finite(t, err);
    if (rc >= 0)
        rc = update(t, err);
    if (rc < 0)
        return rc;
    slots_sum_rows(t->slots, 0, 0, 2 * (size_t)ops->nterms, sums);
    window_add(&t->window, sums, t->spec->train_batch);
    t->step++;
    progress_step(t->progress, (uint64_t)t->step);
    progress_images(t->progress, (uint64_t)t->images_rank, (uint64_t)(t->step * t->spec->train_batch));
    return 0;
}

int trainer_report(struct trainer *t, const char *split, const struct window *w, double images_per_s, struct err *err)
{
    struct report_term terms[WINDOW_MAX_TERMS];
    struct report_loss loss = { split,
                                t->step,
                                (double)t->step * (double)t->spec->train_batch / t->train->nimages,
                                tier_name(tier_at(t, t->step)),
                                images_per_s,
                                w->nterms,
                                terms };

    for (int k = 0; k < w->nterms; k++)
        terms[k] = (struct report_term){ t->model->ops->terms[k].name, w->sum[2 * k], w->sum[2 * k + 1] };
    return report_loss(t->report, &loss, err);
}

int trainer_log(struct trainer *t, struct err *err)
{
    int rc = 0;

    t->images_per_s = (double)(t->window.images - t->window_resumed) / ((double)(now_ns() - t->window_ns) * 1e-9);
    if (t->opt.rank == 0)
        rc = trainer_report(t, "train", &t->window, t->images_per_s, err);
    window_reset(&t->window, t->model->ops->nterms);
    return rc;
}
