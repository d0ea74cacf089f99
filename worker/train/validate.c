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
#include "worker/eval/coco_ap.h"
#include "worker/eval/voc_ap.h"
#include "worker/models/model.h"
#include "worker/optim/ema.h"
#include "worker/optim/optimizer.h"
#include "worker/train/feed.h"
#include "worker/report/progress.h"
#include "worker/train/losses.h"
#include "worker/train/scores.h"
#include "worker/train/trainer_impl.h"

/* What a pass collects. */
struct pass {
    struct trainer *t;
    int nshards;
    struct candidate *found; /* [max_det] */
    struct detection *dets;
    size_t ndets, room;
    double *raw; /* [model->raw_terms], what the losses of a shard leave */
};

static int pass_open(struct pass *p, struct trainer *t, struct err *err)
{
    struct gather_options losses = { .comm = t->machine.comm, .deal = GATHER_TURNS, .buffers = 1 };

    memset(p, 0, sizeof *p);
    p->t = t;
    p->nshards = val_shards(t->val.set->nimages, (int)t->spec->val_batch);
    p->found = calloc((size_t)t->spec->val_max_det, sizeof *p->found);
    p->raw = calloc(t->model->raw_terms, sizeof *p->raw);
    if (!p->found || !p->raw)
        return err_set(err, ERR_DEVICE, "out of memory: validation");
    losses.nrecords = p->nshards;
    losses.record_bytes = 2 * (size_t)t->model->ops->nterms * sizeof(double);
    return t->val_losses ? 0 : gather_open(&losses, &t->val_losses, err);
}

static void pass_close(struct pass *p)
{
    free(p->found);
    free(p->dets);
    free(p->raw);
}

static int keep(struct pass *p, int image, const struct candidate *c, const struct placement *place, struct err *err)
{
    const struct dataset_image *img = &p->t->val.set->images[image];
    const float corners[4] = { c->x1, c->y1, c->x2, c->y2 };
    struct detection *d;

    if (p->ndets == p->room) {
        size_t room = p->room ? 2 * p->room : 1024;
        struct detection *more = realloc(p->dets, room * sizeof *more);

        if (!more)
            return err_set(err, ERR_DEVICE, "out of memory: %zu detections", room);
        p->dets = more;
        p->room = room;
    }
    d = &p->dets[p->ndets++];
    memset(d, 0, sizeof *d); /* padding travels between ranks too */
    d->image = image;
    d->cls = c->cls;
    d->slot = c->slot;
    d->score = (double)c->score;
    unplace_box(place, img->w, img->h, corners, d->box);
    return 0;
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
        for (int k = 0; k < n && rc >= 0; k++)
            rc = keep(p, b->index[i], &p->found[k], &place, err);
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

/* ---- scores, on rank 0 ---- */

static struct truth *truths(const struct dataset *d)
{
    int64_t n = d->offset[d->nimages];
    struct truth *t = calloc((size_t)n + 1, sizeof *t);

    for (int i = 0; t && i < d->nimages; i++)
        for (int64_t k = d->offset[i]; k < d->offset[i + 1]; k++) {
            const struct dataset_box *b = &d->boxes[k];

            t[k] = (struct truth){ i, b->cls, b->crowd, false, b->area, { b->x, b->y, b->w, b->h } };
        }
    return t;
}

static int score(struct trainer *t, const struct detection *dets, size_t ndets, struct err *err)
{
    const struct dataset *d = t->val.set;
    struct truth *truth = truths(d);
    size_t ntruths = (size_t)d->offset[d->nimages];
    struct coco_ap coco = { 0 };
    struct voc_ap voc = { 0 };
    int rc =
        truth ? coco_ap_compute(dets, ndets, truth, ntruths, d->nclasses, &coco, err) : err_set(err, ERR_DEVICE, "out of memory: scores");

    if (rc >= 0)
        rc = voc_ap_compute(dets, ndets, truth, ntruths, d->nclasses, 0.5, PR_ALL_POINTS, &voc, err);
    if (rc >= 0)
        rc = scores_report(t->machine.report, t->step, d, &coco, &voc, err);
    coco_ap_free(&coco);
    voc_ap_free(&voc);
    free(truth);
    return rc;
}

static int finish(struct pass *p, struct err *err)
{
    struct trainer *t = p->t;
    struct window w;
    size_t *cut = calloc((size_t)t->opt.nranks + 1, sizeof *cut);
    const double **rows = calloc((size_t)p->nshards, sizeof *rows);
    void *all = NULL;
    int rc = cut && rows ? gather_all(t->val_losses, err) : err_set(err, ERR_DEVICE, "out of memory");

    if (rc >= 0) {
        gather_rows(t->val_losses, 0, rows);
        window_reset(&w, t->model->ops->nterms);
        window_sum(w.nterms, rows, p->nshards, w.sum);
        t->val_loss = window_value(&w, 0);
        rc = comm_gather(t->machine.comm, COMM_SYNC, p->dets, p->ndets * sizeof *p->dets, &all, cut, err);
    }
    if (rc >= 0 && t->opt.rank == 0)
        rc = trainer_report(t, "val", &w, 0, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = score(t, all, cut[t->opt.nranks] / sizeof(struct detection), err);
    free(all);
    free(cut);
    free(rows);
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
