/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/attention.c - attention among the rows of an image. */
#include <assert.h>

#include "worker/layers/layer_op.h"
#include "worker/layers/sparse.h"

struct attention {
    struct attn how;
    float **stats; /* [shards] */
};

static void shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const struct attn *how = &((const struct attention *)c->args)->how;

    assert(y->h == 1 && y->w == 1 && y->n % how->rows == 0 && how->rows <= ATTN_MAX_ROWS);
    assert(y->c % (3 * how->heads) == 0 && y->c / 3 / how->heads <= ATTN_MAX_CHANNELS);
    (void)shard, (void)how;
    y->c /= 3;
}

static int fwd(const struct layer_call *c, struct err *err)
{
    const struct attention *a = c->args;

    return c->dev->on->attn->fwd(c->dev, &a->how, c->out->x, a->stats, c->in[0]->x, c->nshards, err);
}

static int bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    const struct attention *a = c->args;

    return c->dev->on->attn->bwd(c->dev, &a->how, c->in[i]->grad, beta, c->out->grad, (const float *const *)a->stats, c->in[0]->x,
                                 c->out->x, c->nshards, err);
}

static const struct layer_kind attention_kind = { "attention", READS_INPUTS | READS_OUTPUT, shape, fwd, bwd, NULL };

struct value *layer_attention(struct tape *t, struct value *qkv, int heads, int rows)
{
    struct attention a = { .how = { rows, heads } };
    struct value *x = layer_plain(t, qkv);

    if (tape_failed(t))
        return NULL;
    a.stats = tape_host(t, (size_t)tape_shards(t) * sizeof *a.stats);
    for (int s = 0; s < tape_shards(t); s++) {
        a.stats[s] = tape_device_mem(t, ((size_t)x->x[s].n * (size_t)heads + 1) * 2 * sizeof(float), "attention");
        if (!a.stats[s])
            return NULL;
    }
    return layer_op(t, &attention_kind, &x, 1, &a, sizeof a);
}
