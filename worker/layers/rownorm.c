/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/rownorm.c - layer normalisation of a sum of two values. */
#include <assert.h>

#include "worker/layers/sparse.h"
#include "worker/ops/families.h"

struct recorded {
    struct rows_norm how;
    struct param *param[2]; /* gamma, beta */
    float **stats;          /* [shards] */
};

static int backward(struct tape *t, struct node *n, struct err *err)
{
    const struct recorded *r = n->ctx;
    struct device *dev = tape_device(t);
    struct sums_dest dest[2] = { { NULL, 0 } };
    struct tensor *dx[2] = { NULL };
    float beta[2] = { 0 };
    int rc = 0;

    for (int i = 0; i < n->nin && rc >= 0; i++) {
        if (!n->in[i]->needs_grad)
            continue;
        rc = tape_grad(t, n->in[i], &beta[i], err);
        dx[i] = n->in[i]->grad;
    }
    for (int i = 0; i < 2 && rc >= 0; i++) {
        if (!param_trainable(r->param[i]))
            continue;
        dest[i].dst = tape_grad_dest(t, r->param[i], &dest[i].beta, err);
        rc = dest[i].dst ? 0 : err->code;
    }
    if (rc >= 0)
        rc = dev->on->rows->norm_bwd(dev, &r->how, dx[0], dx[1], beta, dest, n->out->grad, (const float *const *)r->stats, n->in[0]->x,
                                     n->nin > 1 ? n->in[1]->x : NULL, tape_shards(t), err);
    for (int i = 0; i < 2 && rc >= 0; i++)
        rc = dest[i].dst ? tape_grad_done(t, r->param[i], err) : 0;
    return rc;
}

/* Makes the output, and memory for the statistics. */
static struct value *output(struct tape *t, struct value *const *in, int nin, const struct recorded *r, enum dtype dtype)
{
    struct tensor *y = tape_host(t, (size_t)tape_shards(t) * sizeof *y);
    bool needs_grad = in[0]->needs_grad || param_trainable(r->param[0]) || param_trainable(r->param[1]) || in[nin - 1]->needs_grad;

    for (int s = 0; s < tape_shards(t); s++) {
        const struct tensor *x = &in[0]->x[s], *other = &in[nin - 1]->x[s];

        assert(x->n == other->n && x->h == other->h && x->w == other->w && x->c == other->c && x->c <= ROWS_MAX_CHANNELS);
        assert((size_t)x->c == r->param[0]->count && (size_t)x->c == r->param[1]->count);
        (void)other;
        y[s] = *x;
        y[s].dtype = dtype;
        r->stats[s] = tape_device_mem(t, (tensor_pixels(x) + 1) * 2 * sizeof(float), "row_norm");
    }
    return tape_failed(t) ? NULL : tape_value(t, y, needs_grad, "row_norm");
}

struct value *layer_row_norm(struct tape *t, struct value *x, struct value *residual, struct param *gamma, struct param *beta, bool relu,
                             enum dtype dtype)
{
    struct value *in[] = { layer_plain(t, x), residual ? layer_plain(t, residual) : NULL }, *out;
    struct device *dev = tape_device(t);
    int nin = residual ? 2 : 1;
    struct recorded *r;

    if (tape_failed(t))
        return NULL;
    r = tape_host(t, sizeof *r);
    *r = (struct recorded){ { 1e-5f, relu, gamma->data, beta->data }, { gamma, beta }, NULL };
    r->stats = tape_host(t, (size_t)tape_shards(t) * sizeof *r->stats);
    out = output(t, in, nin, r, dtype);
    if (!out ||
        tape_fail(
            t, dev->on->rows->norm_fwd(dev, &r->how, out->x, r->stats, in[0]->x, residual ? in[1]->x : NULL, tape_shards(t), tape_err(t)),
            tape_err(t)) < 0)
        return NULL;
    tape_use(t, gamma);
    tape_use(t, beta);
    tape_record(t, backward, out, in, nin, READS_INPUTS, r);
    return out;
}
