#include "worker/optim/optimizer.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/gradients/gradients.h"
#include "worker/ops/families.h"
#include "worker/optim/ema.h"

struct optimizer {
    struct device *dev;
    const struct jobspec *spec;
    const struct optimizer_kind *kind;
    const struct param_group *groups;
    struct optim_item *items; /* [nitems], in the order of the parameters */
    int nitems;
    struct ema *ema;           /* NULL: train.ema is 0 */
    struct clip *clip, *found; /* device memory; host memory, a copy of clip of the last step */
    struct device_mark *sent;  /* passed when found is complete */
};

static const struct optimizer_kind *const kinds[] = { &optimizer_sgd, &optimizer_adam, &optimizer_adamw };

const struct optimizer_kind *optimizer_kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

/* ---- opening ---- */

static int add_item(struct optimizer *o, struct param *p, struct err *err)
{
    struct optim_item *item = &o->items[o->nitems++];

    item->param = p;
    item->ema = ema_other(o->ema, p->index);
    for (int k = 0; k < OPTIM_STATES && o->kind->state[k]; k++) {
        item->state[k] = o->dev->ops->alloc(o->dev, p->count * sizeof(float));
        if (!item->state[k])
            return err_set(err, ERR_DEVICE, "out of memory: %s of %s", o->kind->state[k], p->name);
    }
    return 0;
}

static int fill(struct optimizer *o, struct param *const *params, int nparams, struct err *err)
{
    int rc = o->spec->train_ema > 0 ? ema_open(o->dev, params, nparams, &o->ema, err) : 0;

    if (rc < 0)
        return rc;
    o->items = calloc((size_t)nparams, sizeof *o->items);
    o->clip = o->dev->ops->alloc(o->dev, sizeof *o->clip);
    o->found = o->dev->ops->host_alloc(o->dev, sizeof *o->found);
    o->sent = o->dev->ops->mark_new(o->dev);
    if (!o->items || !o->clip || !o->found || !o->sent)
        return err_set(err, ERR_DEVICE, "out of memory: optimizer");
    for (int i = 0; i < nparams && rc >= 0; i++)
        if (param_trainable(params[i]))
            rc = add_item(o, params[i], err);
    return rc;
}

int optimizer_open(struct device *dev, const struct jobspec *spec, struct param *const *params, int nparams,
                   const struct param_group *groups, struct optimizer **ret_optimizer, struct err *err)
{
    const struct optimizer_kind *kind = optimizer_kind_of(spec->train_optimizer);
    struct optimizer *o;
    int rc;

    if (!kind)
        return err_field(err, ERR_UNSUPPORTED, "train.optimizer", "train.optimizer: there is no '%s'", spec->train_optimizer);
    o = calloc(1, sizeof *o);
    if (!o)
        return err_set(err, ERR_DEVICE, "out of memory: optimizer");
    *o = (struct optimizer){ .dev = dev, .spec = spec, .kind = kind, .groups = groups };
    rc = fill(o, params, nparams, err);
    if (rc < 0) {
        optimizer_close(o);
        return rc;
    }
    *ret_optimizer = o;
    return 0;
}

void optimizer_close(struct optimizer *o)
{
    if (!o)
        return;
    for (int i = 0; i < o->nitems; i++)
        for (int k = 0; k < OPTIM_STATES; k++)
            if (o->items[i].state[k])
                o->dev->ops->free(o->dev, o->items[i].state[k]);
    free(o->items);
    ema_close(o->ema);
    if (o->clip)
        o->dev->ops->free(o->dev, o->clip);
    if (o->found)
        o->dev->ops->host_free(o->dev, o->found);
    if (o->sent)
        o->dev->ops->mark_free(o->dev, o->sent);
    free(o);
}

/* ---- a step ---- */

static int look_at_gradient(struct optimizer *o, const struct gradients *from, double weight, struct err *err)
{
    const struct square_sums s = gradients_squares(from);
    int rc = o->dev->on->optim->clip(o->dev, o->clip, s.blocks, s.order, s.n, weight, o->spec->train_clip_norm, err);

    if (rc >= 0)
        rc = o->dev->ops->copy_async(o->dev, o->found, o->clip, sizeof *o->found, err);
    return rc < 0 ? rc : o->dev->ops->mark(o->dev, o->sent, err);
}

int optimizer_step(struct optimizer *o, const struct gradients *from, double weight, float lr, int64_t t, struct err *err)
{
    const struct jobspec *s = o->spec;
    float average = ema_decay(s->train_ema, t);
    int rc = look_at_gradient(o, from, weight, err);

    for (int i = 0; i < o->nitems; i++) {
        struct optim_item *item = &o->items[i];
        const struct param_group *group = &o->groups[item->param->group];

        item->grad = gradients_sum(from, item->param);
        item->lr = lr * group->lr;
        item->decay = (float)s->train_weight_decay * group->decay;
        item->ema_decay = average;
    }
    return rc < 0 ? rc : o->kind->step(o->dev, s, t, o->items, o->nitems, o->clip, err);
}

void optimizer_hash(struct optimizer *o, struct hash128 *const *blocks)
{
    for (int i = 0; i < o->nitems; i++)
        o->items[i].hashes = blocks[o->items[i].param->index];
}

const int32_t *optimizer_skip(const struct optimizer *o)
{
    return &o->clip->skip;
}

int optimizer_found(struct optimizer *o, struct clip *ret, struct err *err)
{
    int rc = o->dev->ops->reach(o->dev, o->sent, err);

    if (rc >= 0)
        *ret = *o->found;
    return rc;
}

struct ema *optimizer_ema(const struct optimizer *o)
{
    return o->ema;
}

bool optimizer_array(const struct optimizer *o, int i, struct optimizer_array *ret)
{
    int k = o->nitems > 0 ? i / o->nitems : OPTIM_STATES;

    if (k >= OPTIM_STATES || !o->kind->state[k])
        return false;
    *ret = (struct optimizer_array){ o->kind->state[k], o->items[i % o->nitems].param, o->items[i % o->nitems].state[k] };
    return true;
}
