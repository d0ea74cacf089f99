/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/mat.c - products of each row with a matrix that is made for
 * it. */
#include "worker/layers/sparse.h"

#include <assert.h>

#include "worker/layers/layer_op.h"

struct row_mul {
    int at, n; /* first channel of the weights, channels of the output */
};

static void shape(const struct layer_call *c, int shard, struct tensor *y)
{
    const struct tensor *x = &c->in[0]->x[shard], *w = &c->in[1]->x[shard], *first = &c->in[0]->x[0];
    const struct row_mul *r = c->args;

    assert(!c->in[0]->act && !c->in[1]->act && x->h * x->w == first->h * first->w);
    assert(w->n == x->n && w->h == 1 && w->w == 1 && w->dtype == x->dtype && r->at >= 0 && r->at + x->c * r->n <= w->c);
    (void)x, (void)w, (void)first;
    y->c = r->n;
}

/* A matrix for each row of all shards: the pixels of t, or the range of the weights t. */
static const struct mat *side(const struct layer_call *c, const struct tensor *t, bool weights, bool turned)
{
    const struct row_mul *r = c->args;
    struct mat *m = tape_host(c->t, (size_t)c->nshards * sizeof *m);

    for (int v = 0; v < c->nshards; v++) {
        m[v] = (struct mat){ t[v].data, t[v].stride, (long)t[v].h * t[v].w * t[v].stride, turned };
        if (weights) {
            m[v].data = (char *)t[v].data + (size_t)r->at * dtype_bytes(t[v].dtype);
            m[v].pitch = r->n;
        }
    }
    return m;
}

/* out = beta * out + a . b for every row; m x n from m x k and k x n. */
static int multiply(const struct layer_call *c, int m, int n, int k, const struct mat *out, float beta, const struct mat *a,
                    const struct mat *b, struct err *err)
{
    int *rows = tape_host(c->t, (size_t)c->nshards * sizeof *rows);

    for (int v = 0; v < c->nshards; v++)
        rows[v] = c->out->x[v].n;
    return c->dev->on->mat->mul(c->dev, &(struct mat_shape){ m, n, k, c->out->x->dtype }, out, beta, a, b, rows, c->nshards, err);
}

static int fwd(const struct layer_call *c, struct err *err)
{
    const struct tensor *x = c->in[0]->x, *y = c->out->x;

    return multiply(c, x->h * x->w, y->c, x->c, side(c, y, false, false), 0.0f, side(c, x, false, false), side(c, c->in[1]->x, true, false),
                    err);
}

/* Layers read different channels of the weights. The first to go back makes the gradient of all of them zero. */
static int bwd_weights(const struct layer_call *c, float beta, struct err *err)
{
    const struct tensor *x = c->in[0]->x, *dy = c->out->grad, *dw = c->in[1]->grad;
    int rc = 0;

    for (int v = 0; v < c->nshards && rc >= 0 && beta == 0.0f; v++)
        rc = c->dev->ops->zero(c->dev, dw[v].data, tensor_pixels(&dw[v]) * (size_t)dw[v].stride * dtype_bytes(dw[v].dtype), err);
    if (rc < 0)
        return rc;
    return multiply(c, x->c, dy->c, x->h * x->w, side(c, dw, true, false), 1.0f, side(c, x, false, true), side(c, dy, false, false), err);
}

static int bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    const struct tensor *dx = c->in[0]->grad, *dy = c->out->grad, *w = c->in[1]->x;

    if (i == 1)
        return bwd_weights(c, beta, err);
    return multiply(c, dx->h * dx->w, dx->c, dy->c, side(c, dx, false, false), beta, side(c, dy, false, false), side(c, w, true, true),
                    err);
}

struct value *layer_row_mul(struct tape *t, struct value *x, struct value *weights, int at, int n)
{
    static const struct layer_kind kind = { "row_mul", READS_INPUTS, shape, fwd, bwd, NULL };

    return layer_op(t, &kind, (struct value *[]){ x, weights }, 2, &(struct row_mul){ at, n }, sizeof(struct row_mul));
}
