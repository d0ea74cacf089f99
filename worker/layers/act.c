/* worker/layers/act.c - activations without normalisation, and the sum of two values. */
#include "worker/layers/layers.h"

static int pending_backward(struct tape *t, struct node *n, struct err *err)
{
    struct device *dev = tape_device(t);
    const struct tensor *da;
    int rc = tape_grad_turn(t, n->out, &da, err);

    if (rc >= 0)
        rc = dev->on->norm->bwd_apply(dev, n->out->grad, da, tape_operands(t, n->out), NULL, NULL, NULL, NULL, tape_shards(t), err);
    return rc < 0 ? rc : tape_grad_hand_on(t, n->out, n->in[0], err);
}

/* scale 1, shift 0 and the slope stay pending. */
static struct value *pending_leaky(struct tape *t, struct value *raw, float slope)
{
    int nshards = tape_shards(t);
    struct affine *act = tape_host(t, (size_t)nshards * sizeof *act);
    struct value *v;

    for (int s = 0; s < nshards; s++)
        act[s] =
            (struct affine){ tape_constant(t, 1, raw->x[s].c), tape_constant(t, 0, raw->x[s].c), tape_constant(t, slope, raw->x[s].c) };
    v = tape_alias(t, raw, act);
    tape_record(t, pending_backward, v, raw, NULL, NULL);
    return v;
}

struct act_ctx {
    enum act_kind kind;
};

static int act_backward(struct tape *t, struct node *n, struct err *err)
{
    const struct act_ctx *c = n->ctx;
    struct device *dev = tape_device(t);
    float beta;
    int rc;

    if (!n->in[0]->needs_grad)
        return 0;
    rc = tape_grad(t, n->in[0], &beta, err);
    return rc < 0 ? rc : dev->on->map->act_bwd(dev, c->kind, n->in[0]->grad, beta, n->out->grad, n->out->x, tape_shards(t), err);
}

struct value *layer_act(struct tape *t, struct value *x, enum act_kind kind)
{
    struct device *dev = tape_device(t);
    struct act_ctx *c;
    struct value *y;

    if (tape_failed(t) || kind == ACT_LINEAR)
        return x;
    if ((kind == ACT_LEAKY || kind == ACT_RELU) && !x->act)
        return pending_leaky(t, x, kind == ACT_LEAKY ? LEAKY_SLOPE : 0);
    y = tape_value(t, x->x, x->needs_grad, "activation");
    if (!y || tape_fail(t, dev->on->map->act_fwd(dev, kind, y->x, tape_operands(t, x), tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    c = tape_host(t, sizeof *c);
    c->kind = kind;
    tape_record(t, act_backward, y, x, NULL, c);
    return y;
}

static int add_backward(struct tape *t, struct node *n, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < 2 && rc >= 0; i++)
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
    y = tape_value(t, a->x, a->needs_grad || b->needs_grad, "shortcut");
    if (!y || tape_fail(t, dev->on->map->add_fwd(dev, y->x, tape_operands(t, a), tape_operands(t, b), tape_shards(t), tape_err(t)),
                        tape_err(t)) < 0)
        return NULL;
    tape_record(t, add_backward, y, a, b, NULL);
    return y;
}
