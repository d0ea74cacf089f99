#include "worker/train/validate.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/shards.h"
#include "worker/layers/tape.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/loader.h"
#include "worker/data/set/mask_rle.h"
#include "worker/data/read/frames/pose_truth.h"
#include "worker/data/sample/task.h"
#include "worker/data/text/whole_file.h"
#include "worker/eval/depth_metrics.h"
#include "worker/eval/evaluator.h"
#include "worker/models/registry.h"
#include "worker/optim/ema.h"
#include "worker/optim/optimizer.h"
#include "worker/models/pass.h"
#include "worker/train/feed.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/report/val_picture.h"
#include "worker/train/machine.h"
#include "worker/train/rows.h"
#include "worker/train/splits.h"
#include "worker/train/trainer.h"

static const double SATURATED = 0.1; /* fraction of a picture's pixels above which it warns */

/* The ground truth, in the form that evaluators take. */
struct answers {
    struct eval_split eval;
    struct eval_masks masks;
    struct eval_depths depths;
    struct depth_truth *measured; /* NULL: the split has no measured depth */
    struct eval_poses poses;
    struct pose_truth *way; /* NULL: this rank has no true motions */
    const struct dataset *set;
    struct truth *truths;
    int64_t *class_ids;
    const char **class_names;
};

/* The parts of a validation. */
struct validation {
    struct validator *t;
    int nshards;
    struct answers answers;
    struct evaluators *evaluators;
    struct pass *pass;
    bool *alone; /* [images of a shard]: views_alone() of each; such an image has no losses */
};

/* k-th truth, in the order of the data set's boxes. */
static int read_mask(void *of, size_t k, struct rle *ret, struct err *err)
{
    const struct answers *s = of;

    return dataset_mask_rle(s->set, s->truths[k].image, (int64_t)k, ret, err);
}

static int read_depth(void *of, int image, struct eval_depth *ret, struct err *err)
{
    struct answers *s = of;
    struct depth_map map;
    int rc = depth_truth_read(s->measured, image, &map, err);

    *ret = (struct eval_depth){ map.w, map.h, map.metres };
    return rc;
}

/* For a split with measured depth: how to read it, and how the job compares it. */
static int open_depths(struct answers *s, const struct dataset *d, const struct jobspec *spec, struct err *err)
{
    const char *crop = spec->val_depth_crop;
    const struct depth_rule rule = {
        .crop = !crop || strcmp(crop, "none") == 0 ? DEPTH_CROP_NONE
                : strcmp(crop, "garg") == 0        ? DEPTH_CROP_GARG
                                                   : DEPTH_CROP_EIGEN,
        .least = spec->val_depth_least,
        .most = spec->val_depth_cap,
        .factor = spec->val_depth_scale && strcmp(spec->val_depth_scale, "factor") == 0 ? spec->val_depth_factor : NAN,
    };

    if (!depth_truth_any(d))
        return 0;
    s->depths = (struct eval_depths){ s, read_depth, rule };
    s->eval.depths = &s->depths;
    return depth_truth_open(d, &s->measured, err);
}

static bool no_motion(void *of, int image, double ret[RESULT_POSE], int *ret_next)
{
    (void)of, (void)image, (void)ret, (void)ret_next;
    return false;
}

/* For a split with poses. All ranks keep the predicted motions. Only rank 0 scores them, so only it reads the true
 * ones. If a file has changed since the job began, the score is lost, not the job. */
static int open_poses(struct answers *s, const struct dataset *d, const struct validator *t, struct err *err)
{
    int rc;

    s->poses = (struct eval_poses){ NULL, no_motion, pose_truth_view(d) };
    if (s->poses.view < 0)
        return 0;
    if (t->machine->opt->rank == 0) {
        rc = pose_truth_open(d, &s->way, err);
        if (rc < 0 && file_at_fault(rc))
            return report_event(t->machine->report, err, "warning", "poses", "validation after step %lld says nothing of motion: %s",
                                (long long)t->state->step, err->msg);
        if (rc < 0)
            return rc;
        s->poses.of = s->way;
        s->poses.motion = pose_truth_motion;
    }
    s->eval.poses = &s->poses;
    return 0;
}

static int answers_open(struct answers *s, const struct validator *t, struct err *err)
{
    const struct dataset *d = t->val->set;
    size_t ntruths = (size_t)d->offset[d->nimages];

    s->set = d;
    s->masks = (struct eval_masks){ s, read_mask };
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

            s->truths[k] = (struct truth){ i, b->cls, b->crowd, false, b->area, { 0 } };
            memcpy(s->truths[k].box, b->told, sizeof b->told);
        }
    s->eval = (struct eval_split){ d->nimages,
                                   d->nclasses,
                                   s->class_ids,
                                   s->class_names,
                                   s->truths,
                                   ntruths,
                                   d->masks ? &s->masks : NULL,
                                   NULL,
                                   NULL,
                                   (int)t->machine->spec->val_max_det };
    return open_depths(s, d, t->machine->spec, err) < 0 ? err->code : open_poses(s, d, t, err);
}

static void answers_close(struct answers *s)
{
    free(s->truths);
    free(s->class_ids);
    free(s->class_names);
    depth_truth_close(s->measured);
    pose_truth_close(s->way);
}

static int validation_open(struct validation *v, struct validator *t, struct err *err)
{
    struct gather_options losses = { .comm = t->machine->comm, .deal = GATHER_TURNS, .buffers = 1 };
    struct pass_options pass = {
        t->model, t->tape, (int)t->machine->spec->val_batch, true, t->model->ops->result != NULL, t->model->ops->result != NULL
    };
    int rc;

    memset(v, 0, sizeof *v);
    v->t = t;
    v->nshards = val_shards(t->val->task->samples, (int)t->machine->spec->val_batch);
    rc = answers_open(&v->answers, t, err);
    if (rc >= 0)
        rc = evaluators_open(t->model->family->evaluators, &v->answers.eval, &v->evaluators, err);
    if (rc >= 0)
        rc = pass_open(&pass, &v->pass, err);
    v->alone = calloc((size_t)pass.images, sizeof *v->alone);
    if (rc >= 0 && !v->alone)
        rc = err_set(err, ERR_DEVICE, "out of memory: losses");
    if (rc < 0 || t->losses)
        return rc;
    losses.nrecords = v->nshards;
    losses.record_bytes = 2 * (size_t)t->model->nterms * sizeof(double);
    return gather_open(&losses, &t->losses, err);
}

static void validation_close(struct validation *v)
{
    evaluators_close(v->evaluators);
    answers_close(&v->answers);
    pass_close(v->pass);
    free(v->alone);
}

/* Warns once if many pixels of the first image, which rank 0 has, are at the smallest depth that the network can
 * give. */
static int tell_saturated(struct validation *v, const struct result *r, struct err *err)
{
    struct validator *t = v->t;
    double least = t->machine->spec->model_min_depth, part = depth_saturated(&r->depth, least);

    if (t->saturated || part < SATURATED)
        return 0;
    t->saturated = true;
    return report_event(t->machine->report, err, "warning", "depth",
                        "validation after step %lld: %.0f %% of the pixels of '%s' are at model.min_depth (%g), the nearest depth that the "
                        "network can say, and "
                        "have no order among them; a new job with model.min_depth=%g may tell them apart",
                        (long long)t->state->step, 100 * part, t->val->set->images[r->image].file, least, least / 3);
}

/* Writes the picture of the first image. If that fails the job continues, and one event reports it. */
static int show(struct validation *v, const struct result *r, struct err *err)
{
    struct validator *t = v->t;
    int rc;

    if (r->kind != RESULT_DEPTH || r->image != 0)
        return 0;
    rc = tell_saturated(v, r, err);
    if (rc < 0)
        return rc;
    rc = val_picture_write(t->machine->opt->job_dir, t->state->step, t->val->set, r->image, r, err);
    if (rc >= 0 || t->pictureless) {
        t->pictureless = rc < 0;
        return 0;
    }
    t->pictureless = true;
    return report_event(t->machine->report, err, "warning", "picture", "no picture of the validation after step %lld: %s",
                        (long long)t->state->step, err->msg);
}

static int add_results(struct validation *v, const struct shard_batch *b, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < b->n && rc >= 0 && v->t->model->ops->result; i++) {
        const struct dataset_image *img = &v->t->val->set->images[b->index[i]];
        struct result r;

        rc = pass_result(v->pass, i, b->index[i], img->w, img->h, NAN, &r, err);
        if (rc >= 0)
            rc = evaluators_add(v->evaluators, &r, err);
        if (rc >= 0)
            rc = show(v, &r, err);
    }
    return rc;
}

static int one_shard(struct validation *v, const struct batch *b, struct err *err)
{
    struct validator *t = v->t;
    const struct shard_batch *shard = &b->shard[0];
    double *record = gather_record(t->losses, shard->shard);
    int term, rc;

    rc = pass_run(v->pass, b, err);
    if (rc < 0)
        return rc;
    for (int i = 0; i < shard->n; i++)
        v->alone[i] = t->val->set->views && views_alone(t->val->set->views, shard->index[i]);
    pass_losses(v->pass, v->alone, record);
    term = window_nonfinite(record, t->model->nterms);
    if (term >= 0)
        err_set(err, ERR_NONFINITE, "validation after step %lld: loss term '%s' is not finite; images: %d, the first is '%s'",
                (long long)t->state->step, t->model->terms[term].name, shard->n, t->val->set->images[shard->index[0]].file);
    if (term >= 0)
        return model_explain(t->model, record, err);
    return add_results(v, shard, err);
}

static int all_shards(struct validation *v, struct err *err)
{
    struct validator *t = v->t;
    int mine = val_shards_of_rank(v->nshards, t->machine->opt->rank, t->machine->opt->nranks), rc = 0;

    feed_rewind(t->val->feed);
    for (int k = 0; rc >= 0; k++) {
        struct batch b;

        progress_done(t->machine->progress, (uint64_t)k, (uint64_t)mine);
        rc = feed_next(t->val->feed, &b, err);
        if (rc == LOADER_END)
            return 0;
        if (rc >= 0)
            rc = one_shard(v, &b, err);
    }
    return rc;
}

/* ---- the end of a pass ---- */

/* Sums over all shards, in the order of the split. */
static int sum_losses(struct validation *v, struct window *ret, struct err *err)
{
    const double **rows = calloc((size_t)v->nshards, sizeof *rows);
    int rc = rows ? gather_all(v->t->losses, err) : err_set(err, ERR_DEVICE, "out of memory: losses");

    if (rc >= 0) {
        gather_rows(v->t->losses, 0, rows);
        window_reset(ret, v->t->model->nterms);
        window_sum(ret->nterms, rows, v->nshards, ret->sum);
    }
    free(rows);
    return rc;
}

/* Rank 0 scores the records of all ranks. */
static int score(struct validation *v, struct evaluator *e, struct metrics *m, struct err *err)
{
    struct validator *t = v->t;
    size_t *cut = calloc((size_t)t->machine->opt->nranks + 1, sizeof *cut), bytes;
    const void *mine = e->ops->pack(e, &bytes);
    void *all = NULL;
    int rc =
        cut ? comm_gather(t->machine->comm, COMM_SYNC, mine, bytes, &all, cut, err) : err_set(err, ERR_DEVICE, "out of memory: scores");

    if (rc >= 0 && t->machine->opt->rank == 0)
        rc = e->ops->score(e, all, cut[t->machine->opt->nranks], m, err);
    free(all);
    free(cut);
    return rc;
}

static int report_scores(struct validation *v, const struct metrics *m, struct err *err)
{
    struct report_metric *rows = calloc((size_t)m->n + 1, sizeof *rows);
    int rc = rows ? 0 : err_set(err, ERR_DEVICE, "out of memory: scores");

    for (int i = 0; i < m->n && rows; i++)
        rows[i] = (struct report_metric){ m->row[i].name, m->row[i].value };
    if (rc >= 0)
        rc = report_eval(v->t->machine->report, v->t->state->step, m->n, rows, err);
    free(rows);
    return rc;
}

/* Sends rank 0's score to all ranks. Returns ERR_INPUT if no metric has this name. */
static int best_metric(const struct validation *v, const struct metrics *m, double *ret, struct err *err)
{
    const struct machine *machine = v->t->machine;
    const char *name = machine->spec->checkpoint_best;
    struct {
        double value;
        int64_t known;
        char names[200]; /* of the existing metrics */
    } said = { NAN, 0, "" };
    int rc;

    for (int i = 0; i < m->n; i++) {
        size_t used = strlen(said.names);

        if (strcmp(m->row[i].name, name) == 0) {
            said.value = m->row[i].value;
            said.known = 1;
        }
        if (!strchr(m->row[i].name, ':'))
            snprintf(said.names + used, sizeof said.names - used, ", %s", m->row[i].name);
    }
    rc = comm_broadcast(machine->comm, COMM_SYNC, &said, sizeof said, err);
    if (rc >= 0 && !said.known)
        rc = err_field(err, ERR_INPUT, "checkpoint.best", "checkpoint.best: a validation has no metric '%s'; it has loss%s", name,
                       said.names);
    *ret = said.value;
    return rc;
}

bool validation_is_better(const char *by, double value, double than)
{
    return strcmp(by, "loss") == 0 || metric_is_error(by) ? value < than : value > than;
}

static int note_best(struct validation *v, const struct metrics *m, struct err *err)
{
    struct state *s = v->t->state;
    const char *by = v->t->machine->spec->checkpoint_best;
    int rc = 0;

    s->score = s->val_loss;
    if (strcmp(by, "loss") != 0)
        rc = best_metric(v, m, &s->score, err);
    if (rc < 0 || isnan(s->score))
        return rc;
    if (s->best_step == 0 || validation_is_better(by, s->score, s->best)) {
        s->best = s->score;
        s->best_step = s->step;
    }
    return 0;
}

static int finish(struct validation *v, struct err *err)
{
    struct validator *t = v->t;
    struct metrics m = { 0 };
    struct window w;
    int rc = sum_losses(v, &w, err);

    if (rc >= 0)
        t->state->val_loss = window_value(&w, 0);
    for (int i = 0; i < v->evaluators->n && rc >= 0 && t->model->ops->result; i++)
        rc = score(v, v->evaluators->each[i], &m, err);
    if (rc >= 0 && t->machine->opt->rank == 0)
        rc = rows_report(t->rows, "val", t->state->step, &w, 0, err);
    if (rc >= 0 && t->machine->opt->rank == 0)
        rc = report_scores(v, &m, err);
    if (rc >= 0 && v->t->optimizer) /* for a job's own validations */
        rc = note_best(v, &m, err);
    free(m.row);
    return rc;
}

int validator_run(struct validator *t, struct err *err)
{
    struct validation v;
    struct ema *ema;
    int rc;

    if (t->state->val_step == t->state->step)
        return 0;
    progress_phase(t->machine->progress, PHASE_VALIDATE);
    rc = validation_open(&v, t, err);
    ema = t->optimizer ? optimizer_ema(t->optimizer) : NULL;
    ema_swap(ema);
    if (rc >= 0)
        rc = all_shards(&v, err);
    ema_swap(ema);
    if (rc >= 0)
        rc = finish(&v, err);
    validation_close(&v);
    t->state->val_step = t->state->step;
    return rc;
}
