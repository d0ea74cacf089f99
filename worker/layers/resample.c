/* worker/layers/resample.c - operations that move pixels or channels: concat, upsample. Both read pending values. */
#include <assert.h>

#include "worker/layers/layer_op.h"

static void concat_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    for (int i = 1; i < c->nin; i++) {
        const struct tensor *x = &c->in[i]->x[shard];

        assert(x->n == y->n && x->h == y->h && x->w == y->w && x->dtype == y->dtype);
        y->c += x->c;
    }
}

/* The channels of input i in every shard of y, as tensors of their own. */
static struct tensor *slices(const struct layer_call *c, const struct tensor *y, int i)
{
    struct tensor *s = tape_host(c->t, (size_t)c->nshards * sizeof *s);
    int first = 0;

    for (int k = 0; k < i; k++)
        first += c->in[k]->x[0].c;
    for (int v = 0; v < c->nshards; v++) {
        s[v] = y[v];
        s[v].data = (char *)y[v].data + (size_t)first * dtype_bytes(y[v].dtype);
        s[v].c = c->in[i]->x[0].c;
    }
    return s;
}

static int concat_fwd(const struct layer_call *c, struct err *err)
{
    int rc = 0;

    for (int i = 0; i < c->nin && rc >= 0; i++)
        rc = c->dev->on->map->act_fwd(c->dev, ACT_LINEAR, slices(c, c->out->x, i), tape_operands(c->t, c->in[i]), c->nshards, err);
    return rc;
}

static int concat_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->map->act_bwd(c->dev, ACT_LINEAR, c->in[i]->grad, beta, slices(c, c->out->grad, i), NULL, c->nshards, err);
}

static const struct layer_kind concat = { "concat", 0, concat_shape, concat_fwd, concat_bwd };

struct value *layer_concat(struct tape *t, struct value *const *parts, int nparts)
{
    return layer_op(t, &concat, parts, nparts, NULL, 0);
}

static void upsample_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const int factor = *(const int *)c->args;

    (void)shard;
    y->h *= factor;
    y->w *= factor;
}

static int upsample_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->resample->upsample_fwd(c->dev, *(const int *)c->args, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int upsample_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->resample->upsample_bwd(c->dev, *(const int *)c->args, c->in[i]->grad, beta, c->out->grad, c->nshards, err);
}

static const struct layer_kind upsample = { "upsample", 0, upsample_shape, upsample_fwd, upsample_bwd };

struct value *layer_upsample(struct tape *t, struct value *x, int factor)
{
    assert(factor >= 1);
    return layer_op(t, &upsample, &x, 1, &factor, sizeof factor);
}
