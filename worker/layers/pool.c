/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/pool.c - pooling of windows of pixels. Reads pending
 * values. */
#include <assert.h>

#include "worker/kernels/pool.h"
#include "worker/layers/layer_op.h"

static void maxpool_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const struct pooling *p = c->args;

    (void)shard;
    y->h = maxpool_out(y->h, p);
    y->w = maxpool_out(y->w, p);
}

static int maxpool_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->pool->max_fwd(c->dev, c->args, c->out->x, tape_operands(c->t, c->in[0]), c->nshards, err);
}

static int maxpool_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->pool->max_bwd(c->dev, c->args, c->in[i]->grad, beta, c->out->grad, tape_operands(c->t, c->in[i]), c->nshards, err);
}

/* True if each pixel is in exactly one window. Padding of 1 is on the right, beyond the pixels of an even map. */
static bool pools_fours(const struct layer_call *c)
{
    const struct pooling *p = c->args;

    for (int s = 0; s < c->nshards; s++)
        if (c->in[0]->x[s].h % 2 != 0 || c->in[0]->x[s].w % 2 != 0)
            return false;
    return p->size == 2 && p->stride == 2;
}

static const struct layer_kind maxpool = { "maxpool", READS_INPUTS, maxpool_shape, maxpool_fwd, maxpool_bwd, pools_fours };

struct value *layer_maxpool(struct tape *t, struct value *x, const struct pooling *p)
{
    assert(p->pad_total >= 0 && p->pad_total < p->size && p->stride >= 1);
    return layer_op(t, &maxpool, &x, 1, p, sizeof *p);
}
