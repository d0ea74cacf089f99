/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/act.c - activations without normalisation, sums of two
 * values, other dtypes. */
#include "worker/layers/layer_op.h"

#include <assert.h>
#include <string.h>

static int pending_backward(struct tape *t, struct node *n, struct err *err)
{
    struct device *dev = tape_device(t);
    const struct tensor *da;
    int rc = tape_grad_turn(t, n->out, &da, err);

    if (rc >= 0)
        rc = dev->on->norm->bwd_apply(dev, n->out->grad, da, tape_operands(t, n->out), NULL, NULL, NULL, NULL, tape_shards(t), err);
    return rc < 0 ? rc : tape_grad_hand_on(t, n->out, n->in[0], err);
}

/* scale is 1, shift is 0, and the slope stays pending. */
static struct value *pending_leaky(struct tape *t, struct value *raw, float slope)
{
    int nshards = tape_shards(t);
    struct affine *act = tape_host(t, (size_t)nshards * sizeof *act);
    struct value *v;

    for (int s = 0; s < nshards; s++)
        act[s] =
            (struct affine){ tape_constant(t, 1, raw->x[s].c), tape_constant(t, 0, raw->x[s].c), tape_constant(t, slope, raw->x[s].c) };
    v = tape_alias(t, raw, act, raw->needs_grad);
    tape_record(t, pending_backward, v, &raw, 1, READS_OUTPUT, NULL);
    return v;
}

static int act_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->map->act_fwd(c->dev, *(const enum act_kind *)c->args, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int act_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->map->act_bwd(c->dev, *(const enum act_kind *)c->args, c->in[i]->grad, beta, c->out->grad, c->out->x, c->nshards,
                                    err);
}

static const struct layer_kind activation = { "activation", READS_OUTPUT, NULL, act_fwd, act_bwd, NULL };

struct value *layer_act(struct tape *t, struct value *x, enum act_kind kind)
{
    if (tape_failed(t) || kind == ACT_LINEAR)
        return x;
    if ((kind == ACT_LEAKY || kind == ACT_RELU) && !x->act)
        return pending_leaky(t, x, kind == ACT_LEAKY ? LEAKY_SLOPE : 0);
    return layer_op(t, &activation, &x, 1, &kind, sizeof kind);
}

struct value *layer_leaky(struct tape *t, struct value *x, float slope)
{
    if (tape_failed(t))
        return NULL;
    assert(!x->act);
    return pending_leaky(t, x, slope);
}

struct dropout {
    float rate;
    const struct philox_key *keys;
};

static int dropout_fwd(const struct layer_call *c, struct err *err)
{
    const struct dropout *d = c->args;

    return c->dev->on->map->dropout(c->dev, d->rate, d->keys, c->out->x, 0.0f, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int dropout_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    const struct dropout *d = c->args;
    struct operand *dy = tape_host(c->t, (size_t)c->nshards * sizeof *dy);

    for (int s = 0; s < c->nshards; s++)
        dy[s] = (struct operand){ .x = c->out->grad[s] };
    return c->dev->on->map->dropout(c->dev, d->rate, d->keys, c->in[i]->grad, beta, dy, c->nshards, err);
}

static const struct layer_kind dropout = { "dropout", 0, NULL, dropout_fwd, dropout_bwd, NULL };

struct value *layer_dropout(struct tape *t, struct value *x, float rate, const struct philox_key *keys)
{
    struct philox_key *own;
    size_t images = 0;

    if (tape_failed(t) || tape_mode_of(t) == TAPE_EVAL)
        return x;
    assert(rate >= 0 && rate < 1);
    for (int s = 0; s < tape_shards(t); s++)
        images += (size_t)x->x[s].n;
    own = tape_host(t, images * sizeof *own);
    memcpy(own, keys, images * sizeof *own);
    return layer_op(t, &dropout, &x, 1, &(struct dropout){ rate, own }, sizeof(struct dropout));
}

/* Does not use layer_op(): the gradient of a sum is that of both terms, unchanged. */
static int add_backward(struct tape *t, struct node *n, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < n->nin && rc >= 0; i++)
        if (n->in[i]->needs_grad)
            rc = tape_grad_hand_on(t, n->out, n->in[i], err);
    return rc;
}

struct value *layer_add(struct tape *t, struct value *a, struct value *b)
{
    struct device *dev = tape_device(t);
    struct value *y;

    if (tape_failed(t))
        return NULL;
    for (int s = 0; s < tape_shards(t); s++)
        layer_same_shape(&a->x[s], &b->x[s]);
    y = tape_value(t, a->x, a->needs_grad || b->needs_grad, "shortcut");
    if (!y || tape_fail(t, dev->on->map->add_fwd(dev, y->x, tape_operands(t, a), tape_operands(t, b), tape_shards(t), tape_err(t)),
                        tape_err(t)) < 0)
        return NULL;
    tape_record(t, add_backward, y, (struct value *[]){ a, b }, 2, 0, NULL);
    return y;
}

static void cast_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    (void)shard;
    y->dtype = *(const enum dtype *)c->args;
}

static int cast_fwd(const struct layer_call *c, struct err *err)
{
    const struct tensor *x = tape_plain(c->t, c->in[0]);

    return x ? c->dev->on->map->cast(c->dev, c->out->x, x, c->nshards, err) : tape_status(c->t, err);
}

/* A gradient may only be added to in its own dtype, so this part is converted first. */
static int cast_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    struct value *part;
    int rc;

    if (beta == 0.0f)
        return c->dev->on->map->cast(c->dev, c->in[i]->grad, c->out->grad, c->nshards, err);
    part = tape_value(c->t, c->in[i]->x, false, "gradient");
    if (!part)
        return tape_status(c->t, err);
    rc = c->dev->on->map->cast(c->dev, part->x, c->out->grad, c->nshards, err);
    if (rc >= 0)
        rc = c->dev->on->map->act_bwd(c->dev, ACT_LINEAR, c->in[i]->grad, beta, part->x, NULL, c->nshards, err);
    tape_drop(c->t, part);
    return rc;
}

static const struct layer_kind cast = { "cast", 0, cast_shape, cast_fwd, cast_bwd, NULL };

struct value *layer_cast(struct tape *t, struct value *x, enum dtype dtype)
{
    if (tape_failed(t) || x->x[0].dtype == dtype)
        return x;
    return layer_op(t, &cast, &x, 1, &dtype, sizeof dtype);
}

static int plain_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->map->act_bwd(c->dev, ACT_LINEAR, c->in[i]->grad, beta, c->out->grad, NULL, c->nshards, err);
}

static const struct layer_kind plain = { "activated values", 0, NULL, act_fwd, plain_bwd, NULL };

struct value *layer_plain(struct tape *t, struct value *x)
{
    const enum act_kind linear = ACT_LINEAR;

    return tape_failed(t) || !x->act ? x : layer_op(t, &plain, &x, 1, &linear, sizeof linear);
}

struct value *layer_detach(struct tape *t, struct value *v)
{
    return tape_failed(t) ? NULL : tape_alias(t, v, v->act, false);
}
