#include "worker/layers/conv.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>

struct conv_ctx {
    struct conv cv;
    struct param *w, *bias;
};

/* The output shape of one shard; data is NULL. */
static struct tensor conv_shape(const struct tensor *x, const struct conv *cv, const struct param *w)
{
    struct tensor y = *x;

    y.data = NULL;
    y.h = (x->h + 2 * cv->pad - w->r) / cv->stride + 1;
    y.w = (x->w + 2 * cv->pad - w->s) / cv->stride + 1;
    y.c = y.stride = w->k;
    return y;
}

int conv_bias_backward(struct tape *t, const struct param *bias, const struct tensor *dy, struct err *err)
{
    struct device *dev = tape_device(t);
    float beta;
    float *const *db = tape_grad_dest(t, bias, &beta, err);
    int rc;

    if (!db)
        return err->code;
    rc = dev->on->conv->bwd_bias(dev, db, beta, dy, tape_shards(t), err);
    return rc < 0 ? rc : tape_grad_done(t, bias, err);
}

int conv_weights_backward(struct tape *t, const struct conv *cv, struct param *w, struct value *x, const struct tensor *dy,
                          const struct norm_grad *norm, struct err *err)
{
    struct device *dev = tape_device(t);
    float beta;
    float *const *dw = tape_grad_dest(t, w, &beta, err);
    const struct operand *in;
    int rc;

    if (!dw)
        return err->code;
    in = tape_conv_operands(t, x);
    if (!in)
        return tape_status(t, err);
    rc = dy ? dev->on->conv->bwd_weights(dev, dw, beta, in, dy, cv, w, tape_shards(t), err)
            : dev->on->conv_norm->bwd_weights(dev, dw, beta, in, norm, cv, w, tape_shards(t), err);
    return rc < 0 ? rc : tape_grad_done(t, w, err);
}

/* Weights first: their bucket can be sent while the data gradient is computed. */
static int conv_backward(struct tape *t, struct node *n, struct err *err)
{
    const struct conv_ctx *c = n->ctx;
    struct device *dev = tape_device(t);
    struct value *x = n->in[0];
    const struct tensor *dy = n->out->grad;
    float beta;
    int rc = 0;

    if (c->bias && param_trainable(c->bias))
        rc = conv_bias_backward(t, c->bias, dy, err);
    if (rc >= 0 && param_trainable(c->w))
        rc = conv_weights_backward(t, &c->cv, c->w, x, dy, NULL, err);
    if (rc < 0 || !x->needs_grad)
        return rc;
    rc = tape_grad(t, x, &beta, err);
    return rc < 0 ? rc : dev->on->conv->bwd_data(dev, x->grad, beta, dy, &c->cv, c->w, tape_shards(t), err);
}

/* The output needs a gradient if the input does, or if the weights or the bias train. */
static struct value *output(struct tape *t, const struct value *x, const struct conv_ctx *c)
{
    int nshards = tape_shards(t);
    struct tensor *shape = tape_host(t, (size_t)nshards * sizeof *shape);

    assert(c->cv.stride >= 1);
    for (int s = 0; s < nshards; s++) {
        assert(x->x[s].c == c->w->c && x->x[s].dtype == tape_device(t)->dtype);
        shape[s] = conv_shape(&x->x[s], &c->cv, c->w);
    }
    return tape_value(t, shape, x->needs_grad || param_trainable(c->w) || (c->bias && param_trainable(c->bias)), c->w->name);
}

struct value *conv_raw(struct tape *t, struct value *x, const struct conv *cv, struct param *w, struct param *bias, double *const *stats)
{
    struct device *dev = tape_device(t);
    const struct operand *in;
    struct conv_ctx *c;
    struct value *y;

    if (tape_failed(t))
        return NULL;
    c = tape_host(t, sizeof *c);
    *c = (struct conv_ctx){ *cv, w, bias };
    in = tape_conv_operands(t, x);
    y = output(t, x, c);
    if (!y || tape_fail(t, dev->on->conv->fwd(dev, y->x, in, cv, w, bias ? bias->data : NULL, stats, tape_shards(t), tape_err(t)),
                        tape_err(t)) < 0)
        return NULL;
    tape_use(t, w);
    if (bias)
        tape_use(t, bias);
    tape_record(t, conv_backward, y, &x, 1, param_trainable(w) ? READS_CONV_INPUTS : 0, c);
    return y;
}

struct value *layer_conv(struct tape *t, struct value *x, const struct conv *cv, struct param *w, struct param *bias)
{
    return conv_raw(t, x, cv, w, bias, NULL);
}
