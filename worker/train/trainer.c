#include "worker/train/trainer.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/models/classes.h"
#include "worker/checkpoint/identity.h"
#include "worker/checkpoint/owner.h"
#include "worker/checkpoint/state.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/data/set/dataset.h"
#include "worker/data/sample/task.h"
#include "worker/evidence/recorder.h"
#include "worker/layers/tape.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/optim/optimizer.h"
#include "worker/optim/schedule.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/control.h"
#include "worker/train/course.h"
#include "worker/train/due.h"
#include "worker/train/machine.h"
#include "worker/train/rows.h"
#include "worker/train/save.h"
#include "worker/train/shapes.h"
#include "worker/train/splits.h"
#include "worker/train/step.h"
#include "worker/train/validate.h"

static const size_t arena_chunk = (size_t)256 << 20, gpu_arena_chunk = (size_t)1 << 30;

/* The parts of a rank. Each part uses only those above it. */
struct trainer {
    const struct jobspec *spec;
    struct trainer_options opt;
    struct machine machine;
    char store_id[REPORT_STORE_ID]; /* the owner of checkpoints, see ckpt.h */
    struct control control;
    struct split train, val;
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct optimizer *optimizer;
    struct course course;
    struct state state;
    struct identity *identity; /* rank 0 */
    struct rows rows;
    struct stepper *stepper;
    struct validator validator;
    struct keeper keeper;
};

/* ---- opening ---- */

static int64_t last_step(const struct trainer *t)
{
    return t->spec->verify_evidence ? t->spec->verify_to : t->spec->train_steps;
}

/* Tiers agreed on by earlier attempts come with the start message. */
static int open_machine(struct trainer *t, struct err *err)
{
    struct report_go *go = calloc(1, sizeof *go);
    int rc = go ? machine_open(&t->machine, t->spec, &t->opt, go, err) : err_set(err, -ENOMEM, "out of memory");

    control_init(&t->control, t->machine.report, t->spec->train_log_every, last_step(t), tier_of(t->spec->run_deterministic));
    for (int i = 0; rc >= 0 && i < go->ntiers; i++)
        control_tier(&t->control, go->tiers[i].step, tier_of(go->tiers[i].tier));
    if (rc >= 0)
        memcpy(t->store_id, go->store_id, sizeof go->store_id);
    free(go);
    return rc;
}

static void layer_done(void *progress)
{
    progress_layer(progress);
}

/* The model for the classes of d. */
static int open_model(struct trainer *t, const struct dataset *d, struct err *err)
{
    struct device *dev = t->machine.dev;
    int64_t *id = malloc(((size_t)d->nclasses + 1) * sizeof *id);
    int rc;

    if (!id)
        return err_set(err, ERR_DEVICE, "out of memory");
    for (int i = 0; i < d->nclasses; i++)
        id[i] = d->classes[i].id;
    rc = model_open(t->opt.models, t->spec, (struct model_classes){ d->nclasses, id, d->classes }, dev, &t->model, err);
    free(id);
    if (rc < 0)
        return rc;
    t->arena = arena_new(dev, dev->host_memory ? arena_chunk : gpu_arena_chunk);
    if (t->arena && t->machine.stress)
        arena_stress(t->arena, t->machine.stress);
    t->tape = t->arena ? tape_new(dev, t->arena, t->model->nparams) : NULL;
    if (!t->tape)
        return err_set(err, ERR_DEVICE, "out of memory");
    tape_tell(t->tape, layer_done, t->machine.progress);
    return 0;
}

static int open_optimizer(struct trainer *t, struct err *err)
{
    const struct model *m = t->model;

    return optimizer_open(t->machine.dev, t->spec, m->params, m->nparams, m->groups, &t->optimizer, err);
}

static int open_stepper(struct trainer *t, struct err *err)
{
    const struct stepper_options o = { .machine = &t->machine,
                                       .course = &t->course,
                                       .control = &t->control,
                                       .model = t->model,
                                       .tape = t->tape,
                                       .optimizer = t->optimizer,
                                       .train = &t->train,
                                       .val = &t->val,
                                       .rows = &t->rows,
                                       .state = &t->state };
    int rc;

    course_init(&t->course, t->spec, t->opt.rank, t->opt.nranks);
    state_init(&t->state, t->model->nterms);
    rc = splits_sample(&t->machine, &t->course, t->model, &t->train, &t->val, err);
    if (rc < 0)
        return rc;
    t->rows = (struct rows){ t->machine.report, t->model, &t->control, t->course.batch, t->train.task->samples };
    rc = stepper_open(&o, &t->stepper, err);
    if (rc >= 0)
        t->state.proof = recorder_proof(stepper_recorder(t->stepper));
    return rc;
}

static void join_validator(struct trainer *t)
{
    t->validator = (struct validator){ .machine = &t->machine,
                                       .model = t->model,
                                       .tape = t->tape,
                                       .optimizer = t->optimizer,
                                       .val = &t->val,
                                       .rows = &t->rows,
                                       .state = &t->state };
}

static void join_rest(struct trainer *t)
{
    join_validator(t);
    t->keeper = (struct keeper){ .machine = &t->machine,
                                 .store_id = t->store_id,
                                 .identity = t->identity,
                                 .recorder = stepper_recorder(t->stepper),
                                 .of = { t->spec, t->machine.dev, t->model, t->optimizer, t->train.set, NULL },
                                 .validates = t->val.set != NULL,
                                 .saved_step = -1 };
}

static int open_identity(struct trainer *t, struct err *err)
{
    struct identity_options o = { .job_dir = t->opt.job_dir,
                                  .precision = t->spec->run_precision,
                                  .cfg = t->spec->model_cfg,
                                  .other = t->spec->verify_evidence,
                                  .train = t->train.hash,
                                  .val = t->val.set ? &t->val.hash : NULL,
                                  .dev = t->machine.dev,
                                  .report = t->machine.report };
    struct hash128 keys;
    char spec[33];
    int rc;

    if (t->opt.rank != 0)
        return 0;
    o.ninits = jobspec_inits(t->spec, o.init);
    rc = owner_keys(t->spec, &keys, err);
    if (rc < 0)
        return rc;
    hash_hex(keys, spec);
    o.spec = spec;
    return identity_open(&o, &t->identity, err);
}

/* A job that verifies another run uses that run's tier at each step. */
static int replay_tiers(struct trainer *t, struct err *err)
{
    const struct recorder *r = stepper_recorder(t->stepper);
    struct control *c = &t->control;
    enum tier tier;

    c->replays = t->spec->verify_evidence != NULL;
    for (int64_t step = t->state.step + 1; c->replays && step <= t->spec->verify_to; step++) {
        if (!recorder_tier(r, step, &tier) || tier == control_tier_at(c, step))
            continue;
        if (c->ntiers >= REPORT_MAX_TIERS)
            return err_field(err, ERR_INPUT, "errand.to", "errand.to: the tier changes more than %d times up to it", REPORT_MAX_TIERS);
        control_tier(c, step, tier);
    }
    return 0;
}

/* Checks that the weights on the device are the saved ones. If not, the checkpoint is set aside and the next attempt
 * takes the one before. */
static int begin_evidence(struct trainer *t, struct err *err)
{
    int rc = recorder_begin(stepper_recorder(t->stepper), t->state.step, err);

    if (rc == ERR_CORRUPT)
        keeper_reject(&t->keeper, t->state.step);
    return rc < 0 ? rc : replay_tiers(t, err);
}

/* Reports the result of model.init to the log and the store. */
static int say_loaded(struct trainer *t, struct err *err)
{
    fprintf(stderr, "%s\n", t->model->loaded);
    return report_event(t->machine.report, err, "info", "init", "%s", t->model->loaded);
}

/* Ignored keys of the network's .cfg: an event for each line of notes. */
static int say_notes(struct trainer *t, struct err *err)
{
    const char *at = t->model->notes;
    int rc = 0;

    while (at && *at && rc >= 0) {
        int len = (int)strcspn(at, "\n");

        rc = report_event(t->machine.report, err, "info", "model", "%.*s", len, at);
        at += len + (at[len] == '\n');
    }
    return rc;
}

/* Opens everything that training needs and loads the checkpoint to start from. After a failure close_all() frees the
 * opened parts. */
static int open_all(struct trainer *t, const struct jobspec *spec, const struct trainer_options *opt, struct err *err)
{
    int rc;

    t->spec = spec;
    t->opt = *opt;
    rc = open_machine(t, err);
    if (rc >= 0)
        rc = splits_open(&t->machine, &t->train, &t->val, err);
    if (rc >= 0)
        rc = open_model(t, t->train.set, err);
    if (rc >= 0)
        rc = open_optimizer(t, err);
    if (rc >= 0)
        rc = open_stepper(t, err);
    if (rc < 0)
        return rc;
    progress_phase(t->machine.progress, PHASE_LOAD);
    rc = open_identity(t, err);
    join_rest(t);
    if (rc >= 0)
        rc = keeper_resume(&t->keeper, &t->state, err);
    if (rc >= 0)
        rc = begin_evidence(t, err);
    if (rc >= 0 && opt->rank == 0 && t->state.step == 0)
        rc = say_notes(t, err);
    if (rc >= 0 && opt->rank == 0 && t->state.step == 0 && t->model->loaded[0])
        rc = say_loaded(t, err);
    return rc < 0 ? rc : splits_begin(&t->machine, &t->course, t->state.step + 1, &t->train, &t->val, err);
}

/* ---- another job's checkpoint, once ---- */

/* Its network, for the classes in the checkpoint. They become the classes of the set. */
static int open_checkpoint(struct trainer *t, struct err *err)
{
    const bool frames = t->val.set->views != NULL;
    struct class_list classes = { 0 };
    struct ckpt *c = NULL;
    char dir[4096 + 64];
    int64_t gone = 0;
    int rc;

    snprintf(dir, sizeof dir, "%s/checkpoints", t->spec->eval_run);
    rc = ckpt_open(dir, t->spec->eval_step, NULL, &c, err);
    if (rc >= 0)
        rc = classes_read(safetensors_meta(c->model, CLASSES_META), frames, &classes, err);
    if (rc >= 0)
        rc = dataset_take_classes(t->val.set, classes.n, classes.id, classes.name, &gone, err);
    if (rc >= 0 && gone > 0 && t->opt.rank == 0)
        rc = report_event(t->machine.report, err, "warning", "data",
                          "val: objects of classes that the network does not know, which are left out: %lld", (long long)gone);
    if (rc >= 0)
        rc = open_model(t, t->val.set, err);
    if (rc >= 0)
        rc = weights_import(t->model, c->model, err);
    classes_free(&classes);
    ckpt_close(c);
    return rc;
}

static int plan_validation(struct trainer *t, struct err *err)
{
    const struct shapes_options o = {
        .machine = &t->machine,
        .model = t->model,
        .course = &t->course,
        .control = &t->control,
        .val = t->val.task,
        .val_batch = (int)t->spec->val_batch,
    };
    struct shapes *s = shapes_new(&o);
    int rc = s ? shapes_ready_to_validate(s, t->state.step, err) : err_set(err, ERR_DEVICE, "out of memory");

    shapes_free(s);
    return rc;
}

static int evaluate(struct trainer *t, const struct jobspec *spec, const struct trainer_options *opt, struct err *err)
{
    struct device *dev;
    int rc;

    t->spec = spec;
    t->opt = *opt;
    rc = open_machine(t, err);
    if (rc >= 0 && opt->rank == 0)
        rc = report_start(t->machine.report, 0, NULL, err);
    if (rc >= 0)
        rc = splits_open_val(&t->machine, &t->val, err);
    if (rc >= 0)
        rc = open_checkpoint(t, err);
    if (rc < 0)
        return rc;
    dev = t->machine.dev;
    course_init(&t->course, spec, opt->rank, opt->nranks);
    state_init(&t->state, t->model->nterms);
    t->state.step = spec->eval_step;
    t->rows = (struct rows){ t->machine.report, t->model, &t->control, t->course.batch, 0 };
    join_validator(t);
    dev->ops->set_tier(dev, control_tier_at(&t->control, spec->eval_step));
    rc = splits_sample(&t->machine, &t->course, t->model, &t->train, &t->val, err);
    if (rc >= 0)
        rc = splits_begin(&t->machine, &t->course, INT64_MAX, &t->train, &t->val, err); /* no training step follows */
    if (rc >= 0)
        rc = plan_validation(t, err);
    return rc < 0 ? rc : validator_run(&t->validator, err);
}

static void close_all(struct trainer *t)
{
    gather_close(t->validator.losses);
    stepper_close(t->stepper);
    split_close(&t->train);
    split_close(&t->val);
    optimizer_close(t->optimizer);
    tape_free(t->tape);
    arena_free(t->arena);
    model_free(t->model);
    identity_close(t->identity);
    machine_close(&t->machine);
}

/* ---- the loop ---- */

/* True if the score has not improved for train.stop_after validations. Losses are those of all ranks, so all ranks
 * agree. */
static bool is_stale(const struct trainer *t)
{
    return t->spec->train_stop_after > 0 && t->state.stale >= t->spec->train_stop_after;
}

/* Called after a validation that val.every made due. Validations on a user's request do not count: a rerun would not
 * have them. */
static void count_stale(struct trainer *t)
{
    struct state *s = &t->state;

    if (t->spec->train_stop_after == 0)
        return;
    s->stale++;
    if (isnan(s->score) || (s->due_best_step > 0 && !validation_is_better(t->spec->checkpoint_best, s->score, s->due_best)))
        return;
    s->due_best = s->score;
    s->due_best_step = s->step;
    s->stale = 0;
}

/* The best step must have a checkpoint. If the new best step has none (disk full, or not wanted), the previous best is
 * restored on all ranks. Marks, the link, eval, export and predict all use that one. */
static int keep_best(struct trainer *t, double value, int64_t step, struct err *err)
{
    bool saved;
    int rc = t->spec->verify_evidence ? 0 : keeper_saved(&t->keeper, t->state.step, &saved, err);

    if (rc < 0 || t->spec->verify_evidence || saved)
        return rc;
    t->state.best = value;
    t->state.best_step = step;
    return 0;
}

/* Does what is due after step t->state.step. *ret_outcome is set when the run ends here. */
static int after_step(struct trainer *t, const char **ret_outcome, struct err *err)
{
    struct due due = due_after(t->spec, t->state.step, last_step(t), t->val.set, control_due(&t->control, t->state.step));
    double best = t->state.best;
    int64_t best_step = t->state.best_step;
    int rc = 0;

    if (t->val.set)
        recorder_validates(stepper_recorder(t->stepper), t->state.step, &due.validate);
    if (due_is_any(&due))
        rc = stepper_settle(t->stepper, err);
    if (rc >= 0 && due.log)
        rc = stepper_log(t->stepper, err);
    if (rc >= 0 && due.validate)
        rc = validator_run(&t->validator, err);
    if (rc >= 0 && due.validate && due.counts)
        count_stale(t);
    if (rc >= 0 && due.validate)
        due_validated(&due, t->spec, is_stale(t), t->state.best_step == t->state.step);
    if (rc >= 0 && due.save)
        rc = keeper_save(&t->keeper, &t->state, due.word == WORD_PAUSE || due.ends, err);
    if (rc >= 0 && t->state.best_step != best_step)
        rc = keep_best(t, best, best_step, err);
    *ret_outcome = due_outcome(&due);
    return rc;
}

static int train(struct trainer *t, const char **ret_outcome, struct err *err)
{
    int rc = 0;

    if (t->state.step >= last_step(t) || is_stale(t))
        *ret_outcome = "completed";
    while (!*ret_outcome && rc >= 0) {
        rc = stepper_run(t->stepper, err);
        if (rc >= 0)
            rc = after_step(t, ret_outcome, err);
    }
    return rc;
}

/* Errors that the system returns for a file while its folder, disk or server is away. */
static bool is_away(int code)
{
    static const int codes[] = { ENOENT, ENOTDIR, EIO, ESTALE, ENOTCONN, ENXIO, ENODEV, EHOSTDOWN, EHOSTUNREACH, ETIMEDOUT };

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (code == -codes[i])
            return true;
    return false;
}

/* If so, every file of the set was there once. */
static bool was_checked(const char *job_dir)
{
    char index[PATH_MAX + 16];

    snprintf(index, sizeof index, "%s/index.train", job_dir);
    return access(index, F_OK) == 0;
}

/* The class of a failure says where to act. Only "fault" and "missing" are retried. */
static const char *class_of(const struct trainer_options *opt, int code)
{
    if (is_away(code) && was_checked(opt->job_dir))
        return "missing";
    switch (code) {
    case ERR_NONFINITE:
        return "nonfinite";
    case ERR_DATA:
        return "data";
    case ERR_INPUT:
    case ERR_UNSUPPORTED:
        return "user";
    default:
        return "fault";
    }
}

/* Logs the steps before the failure that only this rank knows. A retry continues from a checkpoint. */
static void report_rest(const struct trainer *t)
{
    if (t->stepper && !t->spec->verify_evidence)
        stepper_log_rest(t->stepper, t->keeper.saved_step);
}

/* A loss that is not finite fails all ranks, and each reports it. An aborted rank reports nothing: the failed rank
 * does. */
static void report_failure(struct trainer *t, const struct trainer_options *opt, int code, const struct err *why)
{
    struct err ignored;

    if (t->machine.comm)
        comm_abort(t->machine.comm);
    if (t->machine.report && code != ERR_ABORTED)
        report_end(t->machine.report, "failed", why->msg, class_of(opt, code), &ignored);
}

/* The reason for an end before the last step; "" at the last step. */
static const char *end_reason(const struct trainer *t, const char *outcome, char *text, size_t size)
{
    const char *verdict = recorder_verdict(stepper_recorder(t->stepper));

    if (*verdict || strcmp(outcome, "completed") != 0 || !is_stale(t) || t->state.step >= last_step(t))
        return verdict;
    snprintf(text, size, "stopped after step %lld of %lld: %lld validations since that of step %lld were no better (train.stop_after)",
             (long long)t->state.step, (long long)last_step(t), (long long)t->state.stale, (long long)t->state.due_best_step);
    return text;
}

int trainer_run(const struct jobspec *spec, const struct trainer_options *opt, struct err *err)
{
    struct trainer *t = calloc(1, sizeof *t);
    const char *outcome = NULL;
    char why[160];
    int rc;

    if (!t)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = spec->eval_run ? evaluate(t, spec, opt, err) : open_all(t, spec, opt, err);
    if (rc >= 0 && spec->eval_run)
        outcome = "completed";
    else if (rc >= 0)
        rc = train(t, &outcome, err);
    if (rc >= 0) {
        progress_phase(t->machine.progress, PHASE_ENDING);
        rc = report_end(t->machine.report, outcome, spec->eval_run ? "" : end_reason(t, outcome, why, sizeof why), "", err);
    } else {
        report_rest(t);
        report_failure(t, opt, rc, err);
    }
    close_all(t);
    free(t);
    return rc < 0 ? rc : 0;
}

int trainer_refuse(const struct trainer_options *opt, const struct err *why)
{
    struct report *report;
    struct err ignored;

    if (report_open(opt->control_fd, opt->rank, opt->local_rank, opt->nranks, &report, &ignored) >= 0) {
        report_end(report, "failed", why->msg, class_of(opt, why->code), &ignored);
        report_close(report);
    }
    return why->code;
}
