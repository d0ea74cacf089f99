/* worker/layers/resample.c - operations that move pixels or channels: concat, upsample, max-pool. All read pending values. */
#include <string.h>

#include "worker/layers/layers.h"

struct concat_ctx {
    struct value **part;
    int nparts;
};

/* Channels [first, first + c) of every shard of y, as tensors of their own. */
static struct tensor *slices(struct tape *t, const struct tensor *y, int first, int c)
{
    struct tensor *s = tape_host(t, (size_t)tape_shards(t) * sizeof *s);

    for (int v = 0; v < tape_shards(t); v++) {
        s[v] = y[v];
        s[v].data = (char *)y[v].data + (size_t)first * dtype_bytes(y[v].dtype);
        s[v].c = c;
    }
    return s;
}

static int concat_backward(struct tape *t, struct node *n, struct err *err)
{
    const struct concat_ctx *c = n->ctx;
    struct device *dev = tape_device(t);
    int rc = 0;

    for (int i = 0, first = 0; i < c->nparts && rc >= 0; i++) {
        struct value *in = c->part[i];
        float beta;

        if (in->needs_grad) {
            rc = tape_grad(t, in, &beta, err);
            if (rc >= 0)
                rc = dev->on->map->act_bwd(dev, ACT_LINEAR, in->grad, beta, slices(t, n->out->grad, first, in->x[0].c),
                                           slices(t, n->out->x, first, in->x[0].c), tape_shards(t), err);
        }
        first += in->x[0].c;
    }
    return rc;
}

struct value *layer_concat(struct tape *t, struct value *const *parts, int nparts)
{
    struct device *dev = tape_device(t);
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    struct concat_ctx *c;
    struct value *y;
    bool needs_grad = false;

    if (tape_failed(t))
        return NULL;
    memcpy(shape, parts[0]->x, (size_t)tape_shards(t) * sizeof *shape);
    for (int i = 0; i < nparts; i++)
        needs_grad = needs_grad || parts[i]->needs_grad;
    for (int i = 1; i < nparts; i++)
        for (int s = 0; s < tape_shards(t); s++)
            shape[s].c += parts[i]->x[s].c;
    y = tape_value(t, shape, needs_grad, "concat");
    for (int i = 0, first = 0; y && i < nparts; i++) {
        int nch = parts[i]->x[0].c;

        if (tape_fail(t,
                      dev->on->map->act_fwd(dev, ACT_LINEAR, slices(t, y->x, first, nch), tape_operands(t, parts[i]), tape_shards(t),
                                            tape_err(t)),
                      tape_err(t)) < 0)
            return NULL;
        first += nch;
    }
    c = tape_host(t, sizeof *c);
    c->part = tape_host(t, (size_t)nparts * sizeof(struct value *));
    memcpy(c->part, parts, (size_t)nparts * sizeof(struct value *));
    c->nparts = nparts;
    if (y)
        tape_record(t, concat_backward, y, NULL, NULL, c);
    return y;
}

struct upsample_ctx {
    int factor;
};

static int upsample_backward(struct tape *t, struct node *n, struct err *err)
{
    const struct upsample_ctx *c = n->ctx;
    struct device *dev = tape_device(t);
    float beta;
    int rc;

    if (!n->in[0]->needs_grad)
        return 0;
    rc = tape_grad(t, n->in[0], &beta, err);
    return rc < 0 ? rc : dev->on->resample->upsample_bwd(dev, c->factor, n->in[0]->grad, beta, n->out->grad, tape_shards(t), err);
}

struct value *layer_upsample(struct tape *t, struct value *x, int factor)
{
    struct device *dev = tape_device(t);
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    struct upsample_ctx *c;
    struct value *y;

    if (tape_failed(t))
        return NULL;
    for (int s = 0; s < tape_shards(t); s++) {
        shape[s] = x->x[s];
        shape[s].h *= factor;
        shape[s].w *= factor;
    }
    y = tape_value(t, shape, x->needs_grad, "upsample");
    if (!y ||
        tape_fail(t, dev->on->resample->upsample_fwd(dev, factor, y->x, tape_operands(t, x), tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    c = tape_host(t, sizeof *c);
    c->factor = factor;
    tape_record(t, upsample_backward, y, x, NULL, c);
    return y;
}

static int maxpool_backward(struct tape *t, struct node *n, struct err *err)
{
    struct device *dev = tape_device(t);
    float beta;
    int rc;

    if (!n->in[0]->needs_grad)
        return 0;
    rc = tape_grad(t, n->in[0], &beta, err);
    return rc < 0
               ? rc
               : dev->on->pool->max_bwd(dev, n->ctx, n->in[0]->grad, beta, n->out->grad, tape_operands(t, n->in[0]), tape_shards(t), err);
}

struct value *layer_maxpool(struct tape *t, struct value *x, const struct pooling *p)
{
    struct device *dev = tape_device(t);
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    struct pooling *c = tape_host(t, sizeof *c);
    struct value *y;

    if (tape_failed(t))
        return NULL;
    for (int s = 0; s < tape_shards(t); s++) {
        shape[s] = x->x[s];
        shape[s].h = (shape[s].h + p->pad_total - p->size) / p->stride + 1;
        shape[s].w = (shape[s].w + p->pad_total - p->size) / p->stride + 1;
    }
    y = tape_value(t, shape, x->needs_grad, "maxpool");
    if (!y || tape_fail(t, dev->on->pool->max_fwd(dev, p, y->x, tape_operands(t, x), tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    *c = *p;
    tape_record(t, maxpool_backward, y, x, NULL, c);
    return y;
}
