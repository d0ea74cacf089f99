/* worker/train/shapes.c - which shapes of batches will be computed: a device that plans hears of all of them before the first step, and where
 * the tier changes as soon as that is agreed. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "proto/err.h"
#include "worker/layers/tape.h"
#include "worker/core/shards.h"
#include "worker/data/loader.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"
#include "worker/report/progress.h"
#include "worker/train/trainer_impl.h"

/* What plans are made for: the shapes of tensors and the tier. */
struct shape {
    enum tape_mode mode;
    enum tier tier;
    int images, shards; /* of a shard; computed together */
    struct canvas canvas;
};

struct shapes {
    int ntiers;                  /* changes of tier that were looked at */
    struct plan_readiness ready; /* what has come of it so far */
    int n, room;
    struct shape shape[]; /* that the device was told */
};

static bool same(const struct shape *a, const struct shape *b)
{
    return a->mode == b->mode && a->tier == b->tier && a->images == b->images && a->shards == b->shards &&
           canvas_equal(a->canvas, b->canvas);
}

/* 1: it is known already, 0: it is now. */
static int remember(struct shapes **known, const struct shape *s, struct err *err)
{
    int n = *known ? (*known)->n : 0;

    for (int i = 0; i < n; i++)
        if (same(&(*known)->shape[i], s))
            return 1;
    if (!*known || n == (*known)->room) {
        int room = 2 * n + 16;
        struct shapes *more = realloc(*known, sizeof *more + (size_t)room * sizeof more->shape[0]);

        if (!more)
            return err_set(err, -ENOMEM, "out of memory");
        if (!*known)
            *more = (struct shapes){ 0 };
        more->room = room;
        *known = more;
    }
    (*known)->shape[(*known)->n++] = *s;
    return 0;
}

/* Waits for the plans of each shape, so that a rank that plans many is seen to get on. */
static int tell(struct trainer *t, const struct shape *s, struct err *err)
{
    int rc = remember(&t->shapes, s, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    t->machine.dev->ops->set_tier(t->machine.dev, s->tier);
    rc = t->model->ops->plan(t->model, s->mode, s->images, s->shards, s->canvas, err);
    t->machine.dev->ops->set_tier(t->machine.dev, t->tier);
    if (rc >= 0)
        rc = t->machine.dev->on->plan->ready(t->machine.dev, &t->shapes->ready, err);
    progress_done(t->machine.progress, (uint64_t)t->shapes->n, 0);
    return rc;
}

static int tell_step(struct trainer *t, int64_t step, struct err *err)
{
    const struct jobspec *s = t->spec;
    int waves = (int)s->train_waves, rc = 0;

    for (int w = 0; w < waves && rc >= 0; w++) {
        struct span wave = wave_shards(t->shards, w, waves);
        struct shape shape = { TAPE_TRAIN, control_tier_at(&t->control, step), (int)(s->train_batch / s->train_shards), wave.hi - wave.lo,
                               trainer_canvas(t, step) };

        if (shape.shards > 0)
            rc = tell(t, &shape, err);
    }
    return rc;
}

/* Whole shards and the short last one, where this rank has them. */
static int tell_validation(struct trainer *t, int64_t step, struct err *err)
{
    int batch = (int)t->spec->val_batch, whole, rest, rc = 0;
    struct shape shape = { TAPE_EVAL, control_tier_at(&t->control, step), batch, 1, t->model->canvas };

    if (!t->val)
        return 0;
    whole = t->val->nimages / batch;
    rest = t->val->nimages % batch;
    if (t->opt.rank < whole)
        rc = tell(t, &shape, err);
    shape.images = rest;
    if (rc >= 0 && rest > 0 && whole % t->opt.nranks == t->opt.rank)
        rc = tell(t, &shape, err);
    return rc;
}

/* Of each canvas and tier that is still to come, as far as changes of tier are known. */
static int tell_all(struct trainer *t, struct err *err)
{
    enum tier tier = TIER_OFF;
    struct canvas canvas = { 0 };
    int rc = 0;

    for (int64_t step = t->step + 1; step <= t->spec->train_steps && rc >= 0; step++) {
        bool other_tier = canvas.h == 0 || control_tier_at(&t->control, step) != tier;

        if (!other_tier && canvas_equal(trainer_canvas(t, step), canvas))
            continue;
        canvas = trainer_canvas(t, step);
        tier = control_tier_at(&t->control, step);
        rc = tell_step(t, step, err);
        if (rc >= 0 && other_tier)
            rc = tell_validation(t, step, err);
    }
    return rc;
}

static double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Plans may need a compiler for seconds each, so their number is worth a line. */
static int report_ready(struct trainer *t, const struct plan_readiness *was, double seconds, struct err *err)
{
    const struct plan_readiness *is = &t->shapes->ready;

    if (t->opt.rank != 0 || is->plans == was->plans)
        return 0;
    return report_event(t->machine.report, err, "info", "plan", "%d convolutions planned in %.1f s, %d of them compiled",
                        is->plans - was->plans, seconds, is->compiled - was->compiled);
}

int shapes_ready(struct trainer *t, struct err *err)
{
    struct plan_readiness was = { 0 };
    double began = now_s();
    int rc;

    if (!t->machine.dev->on->plan || (t->shapes && t->shapes->ntiers == t->control.ntiers))
        return 0;
    if (t->shapes)
        was = t->shapes->ready;
    progress_phase(t->machine.progress, PHASE_PLAN);
    rc = tell_all(t, err);
    if (rc < 0)
        return rc;
    assert(t->shapes); /* a step has a wave */
    t->shapes->ntiers = t->control.ntiers;
    return report_ready(t, &was, now_s() - began, err);
}
