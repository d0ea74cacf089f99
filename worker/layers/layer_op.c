#include "worker/layers/layer_op.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <string.h>

struct recorded {
    const struct layer_kind *kind;
    void *args;
};

static int backward(struct tape *t, struct node *n, struct err *err)
{
    const struct recorded *r = n->ctx;
    const struct layer_call c = { t, tape_device(t), n->in, n->nin, tape_shards(t), r->args, n->out };
    int rc = 0;

    for (int i = 0; i < n->nin && rc >= 0; i++) {
        float beta;

        if (!n->in[i]->needs_grad)
            continue;
        if (r->kind->pools && r->kind->pools(&c) && tape_grad_pooled(t, n))
            continue;
        rc = tape_grad(t, n->in[i], &beta, err);
        if (rc >= 0)
            rc = r->kind->bwd(&c, i, beta, err);
    }
    return rc;
}

void layer_same_shape(const struct tensor *a, const struct tensor *b)
{
    assert(a->n == b->n && a->h == b->h && a->w == b->w && a->c == b->c && a->dtype == b->dtype);
    (void)a, (void)b;
}

static void like_inputs(const struct layer_call *c, int shard)
{
    for (int i = 1; i < c->nin; i++)
        layer_same_shape(&c->in[0]->x[shard], &c->in[i]->x[shard]);
}

static struct value *output(const struct layer_call *c, const struct layer_kind *kind)
{
    struct tensor *y = tape_host(c->t, (size_t)c->nshards * sizeof *y);
    bool needs_grad = false;

    for (int s = 0; s < c->nshards; s++) {
        y[s] = c->in[0]->x[s];
        if (kind->shape)
            kind->shape(c, s, &y[s]);
        else
            like_inputs(c, s);
    }
    for (int i = 0; i < c->nin; i++)
        needs_grad = needs_grad || c->in[i]->needs_grad;
    return tape_value(c->t, y, needs_grad, kind->what);
}

struct value *layer_op(struct tape *t, const struct layer_kind *kind, struct value *const *in, int nin, const void *args, size_t bytes)
{
    struct layer_call c = { t, tape_device(t), in, nin, tape_shards(t), args, NULL };
    struct recorded *r;

    if (tape_failed(t))
        return NULL;
    c.out = output(&c, kind);
    if (!c.out || tape_fail(t, kind->fwd(&c, tape_err(t)), tape_err(t)) < 0)
        return NULL;
    r = tape_host(t, sizeof *r);
    r->kind = kind;
    r->args = tape_host(t, bytes);
    if (bytes > 0)
        memcpy(r->args, args, bytes);
    tape_record(t, backward, c.out, in, nin, kind->reads, r);
    return c.out;
}

int layer_loss_grad(struct tape *t, struct value *v, struct tensor **ret)
{
    float beta;

    *ret = NULL;
    if (tape_mode_of(t) == TAPE_EVAL || !v->needs_grad)
        return 0;
    if (tape_fail(t, tape_grad(t, v, &beta, tape_err(t)), tape_err(t)) < 0)
        return tape_err(t)->code;
    *ret = v->grad;
    return 0;
}
