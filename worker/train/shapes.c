#include "worker/train/shapes.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/host/clock.h"
#include "proto/err.h"
#include "proto/grow.h"
#include "worker/core/device.h"
#include "worker/core/shards.h"
#include "worker/data/sample/task.h"
#include "worker/layers/tape.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"
#include "worker/optim/schedule.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/control.h"
#include "worker/train/course.h"
#include "worker/train/machine.h"

/* A plan depends on the shapes of tensors and on the tier. */
struct shape {
    enum tape_mode mode;
    enum tier tier;
    int images, shards; /* images of a shard; shards computed together */
    struct canvas canvas;
    int64_t told; /* the last step for which the device was told of it */
};

enum { AHEAD = 8 }; /* steps ahead at which canvases are looked up that depend on the pictures */

struct shapes {
    struct shapes_options opt;
    struct sampler *sampler;     /* of the training stream; NULL: every shard of a step has one canvas, or not opened yet */
    struct draw *draw;           /* draws of one shard, where its canvas depends on them */
    int64_t step;                /* the next step */
    enum tier tier;              /* of the device at that step */
    int ntiers;                  /* changes of tier seen so far */
    struct plan_readiness ready; /* result so far */
    int n;
    size_t room;
    struct shape *shape; /* [n], all shapes that the device was told of */
};

struct shapes *shapes_new(const struct shapes_options *opt)
{
    struct shapes *s = calloc(1, sizeof *s);

    if (s)
        s->opt = *opt;
    return s;
}

void shapes_free(struct shapes *s)
{
    if (!s)
        return;
    sampler_free(s->sampler);
    free(s->draw);
    free(s->shape);
    free(s);
}

static bool same(const struct shape *a, const struct shape *b)
{
    return a->mode == b->mode && a->tier == b->tier && a->images == b->images && a->shards == b->shards &&
           canvas_equal(a->canvas, b->canvas);
}

/* Returns the remembered shape that equals s; NULL: the device was not told of it. */
static struct shape *known(const struct shapes *k, const struct shape *s)
{
    for (int i = 0; i < k->n; i++)
        if (same(&k->shape[i], s))
            return &k->shape[i];
    return NULL;
}

static int remember(struct shapes *k, const struct shape *s, struct err *err)
{
    if (!GROW(k->shape, k->room, k->n + 1))
        return err_set(err, -ENOMEM, "out of memory");
    k->shape[k->n] = *s;
    k->shape[k->n++].told = k->step;
    return 0;
}

/* Tells the device of a shape, at most once a step. A known shape is told again, so that the device keeps its plans. */
static int tell(struct shapes *k, const struct shape *s, struct err *err)
{
    struct device *dev = k->opt.machine->dev;
    struct shape *old = known(k, s);
    int rc = 0;

    if (old && old->told == k->step)
        return 0;
    if (old)
        old->told = k->step;
    else
        rc = remember(k, s, err);
    if (rc < 0)
        return rc;
    dev->ops->set_tier(dev, s->tier);
    rc = k->opt.model->ops->plan(k->opt.model, s->mode, s->images, s->shards, s->canvas, err);
    dev->ops->set_tier(dev, k->tier);
    return rc;
}

/* Tells the device of a shape, once in a run, and waits for its plans. The rank thus shows progress while it makes many
 * plans. */
static int tell_and_wait(struct shapes *k, const struct shape *s, struct err *err)
{
    struct device *dev = k->opt.machine->dev;
    int rc;

    if (known(k, s))
        return 0;
    rc = tell(k, s, err);
    if (rc < 0)
        return rc;
    rc = dev->on->plan->ready(dev, &k->ready, err);
    progress_done(k->opt.machine->progress, (uint64_t)k->n, 0);
    return rc;
}

/* The canvas of all shards of a step if it does not depend on their samples. { 0, 0 }: it does, and each shard has its
 * own. */
static struct canvas canvas_of(const struct task *task, int64_t step)
{
    return task->ops->canvas(task, step, NULL, 0);
}

static int tell_step(struct shapes *k, int64_t step, struct err *err)
{
    const struct course *c = k->opt.course;
    int rc = 0;

    for (int w = 0; w < c->waves && rc >= 0; w++) {
        struct span wave = wave_shards(c->mine, w, c->waves);
        struct shape shape = { TAPE_TRAIN,        control_tier_at(k->opt.control, step), c->images,
                               wave.hi - wave.lo, canvas_of(k->opt.train, step),         0 };

        if (shape.shards > 0 && shape.canvas.h > 0)
            rc = tell_and_wait(k, &shape, err);
    }
    return rc;
}

/* Tells of a validation: whole shards, and the short last one if this rank has it. */
static int tell_validation(struct shapes *k, int64_t step, struct err *err)
{
    const struct course *c = k->opt.course;
    int batch = k->opt.val_batch, whole, rest, rc = 0;
    struct shape shape = { TAPE_EVAL, control_tier_at(k->opt.control, step), batch, 1, { 0 }, 0 };

    if (k->opt.val)
        shape.canvas = canvas_of(k->opt.val, 0);
    if (shape.canvas.h == 0)
        return 0;
    whole = k->opt.val->samples / batch;
    rest = k->opt.val->samples % batch;
    if (c->rank < whole)
        rc = tell_and_wait(k, &shape, err);
    shape.images = rest;
    if (rc >= 0 && rest > 0 && whole % c->nranks == c->rank)
        rc = tell_and_wait(k, &shape, err);
    return rc;
}

/* ---- canvases that follow from pictures ---- */

static int open_draw(struct shapes *k, struct err *err)
{
    int images = k->opt.course->images > k->opt.val_batch ? k->opt.course->images : k->opt.val_batch;

    if (!k->draw)
        k->draw = calloc((size_t)images, sizeof *k->draw);
    return k->draw ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int open_sampler(struct shapes *k, struct err *err)
{
    int rc = open_draw(k, err);

    return rc < 0 || k->sampler ? rc : task_sampler(k->opt.train, k->opt.course->images, &k->sampler, err);
}

/* Makes the draws that the loader will make. */
static struct canvas canvas_of_shard(struct shapes *k, int64_t step, int v)
{
    const struct course *c = k->opt.course;

    for (int i = 0; i < c->images; i++) {
        k->draw[i] = sampler_at(k->sampler, stream_position(step, c->batch, c->shards, v, i));
        k->draw[i].shard = v;
    }
    return k->opt.train->ops->canvas(k->opt.train, step, k->draw, c->images);
}

/* Neighbouring shards with the same canvas are computed together. Layers that do not depend on the canvas compute all
 * shards of the wave together. */
static int tell_wave(struct shapes *k, int64_t step, struct span wave, struct err *err)
{
    struct shape shape = { TAPE_TRAIN, control_tier_at(k->opt.control, step), k->opt.course->images, 0, { 0 }, 0 };
    int rc = 0;

    for (int v = wave.lo; v < wave.hi && rc >= 0; v++) {
        struct canvas canvas = canvas_of_shard(k, step, v);

        if (shape.shards > 0 && !canvas_equal(canvas, shape.canvas)) {
            rc = tell(k, &shape, err);
            shape.shards = 0;
        }
        shape.canvas = canvas;
        shape.shards++;
    }
    if (rc >= 0 && shape.shards > 0)
        rc = tell(k, &shape, err);
    if (rc >= 0 && shape.shards > 0 && shape.shards < wave.hi - wave.lo) {
        shape.shards = wave.hi - wave.lo;
        shape.canvas = (struct canvas){ 0 };
        rc = tell(k, &shape, err);
    }
    return rc;
}

/* Stops at the last step of the job. Does not wait. */
static int tell_ahead(struct shapes *k, int64_t from, int64_t to, struct err *err)
{
    const struct course *c = k->opt.course;
    int rc = 0;

    for (int64_t step = from; step <= to && step <= c->steps && rc >= 0; step++)
        for (int w = 0; w < c->waves && rc >= 0; w++)
            rc = tell_wave(k, step, wave_shards(c->mine, w, c->waves), err);
    return rc;
}

static int tell_pictures_of_validation(struct shapes *k, int64_t step, struct err *err)
{
    const struct course *c = k->opt.course;
    const struct task *val = k->opt.val;
    int batch = k->opt.val_batch, rc = 0;

    for (int64_t first = (int64_t)c->rank * batch; first < val->samples && rc >= 0; first += (int64_t)c->nranks * batch) {
        int64_t left = val->samples - first;
        struct shape shape = { TAPE_EVAL, control_tier_at(k->opt.control, step), left < batch ? (int)left : batch, 1, { 0 }, 0 };

        for (int i = 0; i < shape.images; i++)
            k->draw[i] = (struct draw){ .sample = (int32_t)(first + i) };
        shape.canvas = val->ops->canvas(val, 0, k->draw, shape.images);
        rc = tell(k, &shape, err);
    }
    return rc;
}

/* Called at the start and when another tier is known to come. Waits for the plans of the first steps; the others are
 * made meanwhile. */
static int tell_pictures(struct shapes *k, int64_t step, struct err *err)
{
    struct device *dev = k->opt.machine->dev;
    int rc = open_sampler(k, err);

    if (rc >= 0)
        rc = tell_ahead(k, step, step + AHEAD, err);
    if (rc >= 0)
        rc = dev->on->plan->ready(dev, &k->ready, err);
    progress_done(k->opt.machine->progress, (uint64_t)k->n, 0);
    if (rc >= 0 && k->opt.val)
        rc = tell_pictures_of_validation(k, step, err);
    if (rc >= 0 && k->opt.val)
        rc = tell_pictures_of_validation(k, k->opt.course->steps, err);
    return rc;
}

/* Tells of the step AHEAD steps later and of a validation after it. Shapes neither told nor computed since then may be
 * dropped by the device. */
static int tell_what_comes(struct shapes *k, int64_t step, struct err *err)
{
    struct device *dev = k->opt.machine->dev;
    int64_t then = step + AHEAD;
    int rc = dev->on->plan->begin(dev, AHEAD, err);

    if (rc >= 0)
        rc = tell_ahead(k, then, then, err);
    if (rc >= 0 && k->opt.val && then <= k->opt.course->steps && schedule_due(k->opt.val_every, then, k->opt.course->steps))
        rc = tell_pictures_of_validation(k, then, err);
    return rc;
}

/* Tells of every canvas and tier that is still to come, with the changes of tier known so far. */
static int tell_all(struct shapes *k, int64_t first, struct err *err)
{
    enum tier tier = TIER_OFF;
    struct canvas canvas = { 0 };
    int rc = 0;

    for (int64_t step = first; step <= k->opt.course->steps && rc >= 0; step++) {
        struct canvas now = canvas_of(k->opt.train, step);
        bool other_tier = step == first || control_tier_at(k->opt.control, step) != tier;

        if (!other_tier && canvas_equal(now, canvas))
            continue;
        canvas = now;
        tier = control_tier_at(k->opt.control, step);
        rc = tell_step(k, step, err);
        if (rc >= 0 && other_tier)
            rc = tell_validation(k, step, err);
    }
    return rc;
}

static bool follows_pictures(const struct shapes *k)
{
    return canvas_of(k->opt.train, 1).h == 0;
}

/* Each plan may take a compiler seconds, so their number is reported. */
static int report_ready(struct shapes *k, const struct plan_readiness *was, double seconds, struct err *err)
{
    const struct plan_readiness *is = &k->ready;

    if (k->opt.course->rank != 0 || is->plans == was->plans)
        return 0;
    return report_event(k->opt.machine->report, err, "info", "plan", "%d convolutions planned in %.1f s, %d of them compiled",
                        is->plans - was->plans, seconds, is->compiled - was->compiled);
}

int shapes_ready(struct shapes *k, int64_t step, struct err *err)
{
    struct device *dev = k->opt.machine->dev;
    struct plan_readiness was = k->ready;
    double began = clock_s();
    int rc;

    if (!dev->on->plan)
        return 0;
    k->step = step;
    k->tier = control_tier_at(k->opt.control, step);
    if (k->ntiers == k->opt.control->ntiers)
        return follows_pictures(k) ? tell_what_comes(k, step, err) : 0;
    progress_phase(k->opt.machine->progress, PHASE_PLAN);
    rc = follows_pictures(k) ? tell_pictures(k, step, err) : tell_all(k, step, err);
    if (rc < 0)
        return rc;
    k->ntiers = k->opt.control->ntiers;
    return report_ready(k, &was, clock_s() - began, err);
}

int shapes_ready_to_validate(struct shapes *k, int64_t step, struct err *err)
{
    struct plan_readiness was = k->ready;
    double began = clock_s();
    int rc;

    if (!k->opt.machine->dev->on->plan)
        return 0;
    k->step = step;
    k->tier = control_tier_at(k->opt.control, step);
    progress_phase(k->opt.machine->progress, PHASE_PLAN);
    if (canvas_of(k->opt.val, 0).h > 0) {
        rc = tell_validation(k, step, err);
    } else {
        rc = open_draw(k, err);
        if (rc >= 0)
            rc = tell_pictures_of_validation(k, step, err);
    }
    return rc < 0 ? rc : report_ready(k, &was, clock_s() - began, err);
}
