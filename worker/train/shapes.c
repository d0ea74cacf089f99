/* worker/train/shapes.c - which shapes of batches will be computed next: a device that plans hears of them while it computes the present
 * ones, and of the first before the first step. */
#include <errno.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/core/tape.h"
#include "worker/data/loader.h"
#include "worker/models/model.h"
#include "worker/train/trainer_impl.h"

enum { STEPS_AHEAD = 10 }; /* sizes are drawn anew every 10 */

/* What plans are made for: the shapes of tensors and the tier. */
struct shape {
    enum tape_mode mode;
    enum tier tier;
    int images, shards, size; /* of a shard; computed together; pixels */
};

struct shapes {
    int n, room;
    struct shape shape[]; /* that the device was told */
};

static bool same(const struct shape *a, const struct shape *b)
{
    return a->mode == b->mode && a->tier == b->tier && a->images == b->images && a->shards == b->shards && a->size == b->size;
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
        more->n = n;
        more->room = room;
        *known = more;
    }
    (*known)->shape[(*known)->n++] = *s;
    return 0;
}

static int tell(struct trainer *t, const struct shape *s, struct err *err)
{
    int rc = remember(&t->shapes, s, err);

    if (rc != 0)
        return rc < 0 ? rc : 0;
    t->dev->ops->set_tier(t->dev, s->tier);
    rc = t->model->ops->plan(t->model, s->mode, s->images, s->shards, s->size, err);
    t->dev->ops->set_tier(t->dev, t->tier);
    return rc;
}

static int tell_step(struct trainer *t, int64_t step, struct err *err)
{
    const struct jobspec *s = t->spec;
    int waves = (int)s->train_waves, rc = 0;

    for (int w = 0; w < waves && rc >= 0; w++) {
        struct span wave = wave_shards(t->shards, w, waves);
        struct shape shape = { TAPE_TRAIN, tier_at(t, step), (int)(s->train_batch / s->train_shards), wave.hi - wave.lo,
                               trainer_size(t, step) };

        if (shape.shards > 0)
            rc = tell(t, &shape, err);
    }
    return rc;
}

/* Whole shards and the short last one, where this rank has them. */
static int tell_validation(struct trainer *t, int64_t step, struct err *err)
{
    int batch = (int)t->spec->val_batch, whole, rest, rc = 0;
    struct shape shape = { TAPE_EVAL, tier_at(t, step), batch, 1, t->model->size };

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

/* A change of tier is known some steps before it. */
static int tell_tiers(struct trainer *t, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < t->ntiers && rc >= 0; i++) {
        int64_t from = t->tiers[i].from;

        if (from <= t->step + 1 || from > t->spec->train_steps)
            continue;
        rc = tell_step(t, from, err);
        if (rc >= 0)
            rc = tell_validation(t, from, err);
    }
    return rc;
}

int shapes_tell(struct trainer *t, struct err *err)
{
    int64_t next = t->step + 1, later = next + STEPS_AHEAD;
    int rc = 0;

    if (!t->dev->ops->conv_plan || next > t->spec->train_steps)
        return 0;
    rc = tell_step(t, next, err);
    if (rc >= 0)
        rc = tell_validation(t, next, err);
    if (rc >= 0)
        rc = tell_tiers(t, err);
    return rc < 0 || later > t->spec->train_steps ? rc : tell_step(t, later, err);
}
