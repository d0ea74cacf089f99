/* worker/train/validate.c - the validation split: losses in eval mode and detections, from the same forward pass. Its shards do not depend
 * on the number of ranks; ranks take them in turn, and nothing is exchanged before the end. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/shards.h"
#include "worker/layers/tape.h"
#include "worker/data/augment.h"
#include "worker/data/loader.h"
#include "worker/eval/evaluator.h"
#include "worker/models/registry.h"
#include "worker/optim/ema.h"
#include "worker/optim/optimizer.h"
#include "worker/train/feed.h"
#include "worker/report/progress.h"
#include "worker/train/losses.h"
#include "worker/train/trainer_impl.h"

/* What there is to be found, as evaluators see it. */
struct answers {
    struct eval_split eval;
    struct truth *truths;
    int64_t *class_ids;
    const char **class_names;
};

/* What a pass collects. */
struct pass {
    struct trainer *t;
    int nshards;
    struct answers answers;
    struct evaluators *evaluators;
    struct candidate *found; /* [max_det] */
    struct detection *dets;  /* [max_det], of one image */
    double *raw;             /* [model->raw_terms], what the losses of a shard leave */
};

static int answers_open(struct answers *s, const struct dataset *d, struct err *err)
{
    size_t ntruths = (size_t)d->offset[d->nimages];

    s->truths = calloc(ntruths + 1, sizeof *s->truths);
    s->class_ids = calloc((size_t)d->nclasses + 1, sizeof *s->class_ids);
    s->class_names = calloc((size_t)d->nclasses + 1, sizeof *s->class_names);
    if (!s->truths || !s->class_ids || !s->class_names)
        return err_set(err, ERR_DEVICE, "out of memory: scores");
    for (int c = 0; c < d->nclasses; c++) {
        s->class_ids[c] = d->classes[c].id;
        s->class_names[c] = d->classes[c].name;
    }
    for (int i = 0; i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            const struct dataset_box *b = &d->boxes[k];

            s->truths[k] = (struct truth){ i, b->cls, b->crowd, false, b->area, { b->x, b->y, b->w, b->h } };
        }
    s->eval = (struct eval_split){ d->nimages, d->nclasses, s->class_ids, s->class_names, s->truths, ntruths };
    return 0;
}

static void answers_close(struct answers *s)
{
    free(s->truths);
    free(s->class_ids);
    free(s->class_names);
}

static int pass_open(struct pass *p, struct trainer *t, struct err *err)
{
    struct gather_options losses = { .comm = t->machine.comm, .deal = GATHER_TURNS, .buffers = 1 };
    int rc;

    memset(p, 0, sizeof *p);
    p->t = t;
    p->nshards = val_shards(t->val.set->nimages, (int)t->spec->val_batch);
    p->found = calloc((size_t)t->spec->val_max_det, sizeof *p->found);
    p->dets = calloc((size_t)t->spec->val_max_det, sizeof *p->dets);
    p->raw = calloc(t->model->raw_terms, sizeof *p->raw);
    if (!p->found || !p->dets || !p->raw)
        return err_set(err, ERR_DEVICE, "out of memory: validation");
    rc = answers_open(&p->answers, t->val.set, err);
    if (rc >= 0)
        rc = evaluators_open(t->model->family->evaluators, &p->answers.eval, &p->evaluators, err);
    if (rc < 0 || t->val_losses)
        return rc;
    losses.nrecords = p->nshards;
    losses.record_bytes = 2 * (size_t)t->model->ops->nterms * sizeof(double);
    return gather_open(&losses, &t->val_losses, err);
}

static void pass_close(struct pass *p)
{
    evaluators_close(p->evaluators);
    answers_close(&p->answers);
    free(p->found);
    free(p->dets);
    free(p->raw);
}

/* Of one image, in its own pixels. */
static int add_result(struct pass *p, int image, int n, const struct placement *place, struct err *err)
{
    const struct dataset_image *img = &p->t->val.set->images[image];
    const struct result r = { .kind = RESULT_BOXES, .image = image, .n = n, .boxes = p->dets };

    for (int k = 0; k < n; k++) {
        const struct candidate *c = &p->found[k];
        const float corners[4] = { c->x1, c->y1, c->x2, c->y2 };

        p->dets[k] = (struct detection){ .image = image, .cls = c->cls, .slot = c->slot, .score = (double)c->score };
        unplace_box(place, img->w, img->h, corners, p->dets[k].box);
    }
    return evaluators_add(p->evaluators, &r, err);
}

static int detect(struct pass *p, const struct shard_batch *b, struct err *err)
{
    const struct jobspec *s = p->t->spec;
    const struct detect_options opt = { (float)s->val_conf, (float)s->val_nms, (int)s->val_max_det };
    int rc = 0;

    for (int i = 0; i < b->n && rc >= 0; i++) {
        const struct dataset_image *img = &p->t->val.set->images[b->index[i]];
        struct placement place = place_letterbox(img->w, img->h, b->canvas);
        int n = 0;

        rc = p->t->model->ops->detect(p->t->model, 0, i, &opt, p->found, &n, err);
        if (rc >= 0)
            rc = add_result(p, b->index[i], n, &place, err);
    }
    return rc;
}

static int one_shard(struct pass *p, const struct batch *b, struct err *err)
{
    struct trainer *t = p->t;
    const struct model_ops *ops = t->model->ops;
    double *record = gather_record(t->val_losses, b->shard[0].shard);
    double *raw = losses_raw(t->losses, t->course.mine.lo);
    int term, rc;

    tape_begin(t->tape, TAPE_EVAL, 1, NULL);
    rc = ops->loss(t->model, t->tape, b, 1, &raw, err);
    if (rc >= 0)
        rc = t->machine.dev->ops->download(t->machine.dev, p->raw, raw, t->model->raw_terms * sizeof *raw, err);
    if (rc < 0)
        return rc;
    ops->sum_terms(t->model, p->raw, b->shard[0].n, record);
    window_record(ops->terms, ops->nterms, record);
    term = window_nonfinite(record, ops->nterms);
    if (term >= 0)
        return err_set(err, ERR_NONFINITE, "validation after step %lld: loss term '%s' is not finite on %d images from '%s' on",
                       (long long)t->step, ops->terms[term].name, b->shard[0].n, t->val.set->images[b->shard[0].index[0]].file);
    return detect(p, &b->shard[0], err);
}

static int all_shards(struct pass *p, struct err *err)
{
    struct trainer *t = p->t;
    int mine = val_shards_of_rank(p->nshards, t->opt.rank, t->opt.nranks), rc = 0;

    feed_rewind(t->val.feed);
    for (int k = 0; rc >= 0; k++) {
        struct batch b;

        progress_done(t->machine.progress, (uint64_t)k, (uint64_t)mine);
        rc = feed_next(t->val.feed, &b, err);
        if (rc == LOADER_END)
            return 0;
        if (rc >= 0)
            rc = one_shard(p, &b, err);
    }
    return rc;
}

/* ---- the end of a pass ---- */

/* Sums over all shards, in the order of the split. */
static int sum_losses(struct pass *p, struct window *ret, struct err *err)
{
    const double **rows = calloc((size_t)p->nshards, sizeof *rows);
    int rc = rows ? gather_all(p->t->val_losses, err) : err_set(err, ERR_DEVICE, "out of memory: losses");

    if (rc >= 0) {
        gather_rows(p->t->val_losses, 0, rows);
        window_reset(ret, p->t->model->ops->nterms);
        window_sum(ret->nterms, rows, p->nshards, ret->sum);
    }
    free(rows);
    return rc;
}

/* Rank 0 has the records of all ranks scored. */
static int score(struct pass *p, struct evaluator *e, struct metrics *m, struct err *err)
{
    struct trainer *t = p->t;
    size_t *cut = calloc((size_t)t->opt.nranks + 1, sizeof *cut), bytes;
    const void *mine = e->ops->pack(e, &bytes);
    void *all = NULL;
    int rc = cut ? comm_gather(t->machine.comm, COMM_SYNC, mine, bytes, &all, cut, err) : err_set(err, ERR_DEVICE, "out of memory: scores");

    if (rc >= 0 && t->opt.rank == 0)
        rc = e->ops->score(e, all, cut[t->opt.nranks], m, err);
    free(all);
    free(cut);
    return rc;
}

static int report_scores(struct pass *p, const struct metrics *m, struct err *err)
{
    struct report_metric *rows = calloc((size_t)m->n + 1, sizeof *rows);
    int rc = rows ? 0 : err_set(err, ERR_DEVICE, "out of memory: scores");

    for (int i = 0; i < m->n && rows; i++)
        rows[i] = (struct report_metric){ m->row[i].name, m->row[i].value };
    if (rc >= 0)
        rc = report_eval(p->t->machine.report, p->t->step, m->n, rows, err);
    free(rows);
    return rc;
}

static int finish(struct pass *p, struct err *err)
{
    struct trainer *t = p->t;
    struct metrics m = { 0 };
    struct window w;
    int rc = sum_losses(p, &w, err);

    if (rc >= 0)
        t->val_loss = window_value(&w, 0);
    for (int i = 0; i < p->evaluators->n && rc >= 0; i++)
        rc = score(p, p->evaluators->each[i], &m, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = trainer_report(t, "val", &w, 0, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = report_scores(p, &m, err);
    free(m.row);
    return rc;
}

int trainer_validate(struct trainer *t, struct err *err)
{
    struct pass p;
    int rc;

    if (t->val_step == t->step)
        return 0;
    progress_phase(t->machine.progress, PHASE_VALIDATE);
    rc = pass_open(&p, t, err);
    ema_swap(optimizer_ema(t->optimizer));
    if (rc >= 0)
        rc = all_shards(&p, err);
    ema_swap(optimizer_ema(t->optimizer));
    if (rc >= 0)
        rc = finish(&p, err);
    pass_close(&p);
    t->val_step = t->step;
    if (rc >= 0 && t->val_loss < t->best) {
        t->best = t->val_loss;
        t->best_step = t->step;
    }
    return rc;
}
