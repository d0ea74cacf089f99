/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/view.c - pictures in the form that networks read, images as
 * single pixels, and convolutions that enlarge. */
#include "worker/layers/conv.h"

#include <assert.h>

struct value *layer_pictures(struct tape *t, const struct tensor *images, const int32_t *const *size, const struct view_colours *colours,
                             enum dtype dtype)
{
    struct device *dev = tape_device(t);
    struct tensor *shape;
    struct value *y;

    if (tape_failed(t))
        return NULL;
    shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    for (int s = 0; s < tape_shards(t); s++) {
        assert(images[s].dtype == DTYPE_U8 && images[s].c == 3 && images[s].stride == 3);
        shape[s] = images[s];
        shape[s].dtype = dtype;
    }
    y = tape_dense(t, shape, "pictures");
    if (!y || tape_fail(t, dev->on->view->normalise(dev, y->x, images, size, colours, tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    return y;
}

static int flat_backward(struct tape *t, struct node *n, struct err *err)
{
    return tape_grad_hand_on(t, n->out, n->in[0], err);
}

struct value *layer_flat(struct tape *t, struct value *x)
{
    struct tensor *shape;
    struct value *y;

    if (tape_failed(t))
        return NULL;
    shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    for (int s = 0; s < tape_shards(t); s++) {
        shape[s] = x->x[s];
        shape[s].h = shape[s].w = 1;
        shape[s].c = x->x[s].h * x->x[s].w * x->x[s].c;
    }
    y = tape_reshape(t, x, shape);
    tape_record(t, flat_backward, y, &x, 1, 0, NULL);
    return y;
}

/* ---- channels become pixels, and get a bias ---- */

static int shuffle_backward(struct tape *t, struct node *n, struct err *err)
{
    struct device *dev = tape_device(t);
    const struct param *bias = n->ctx;
    float beta;
    int rc = 0;

    if (param_trainable(bias))
        rc = conv_bias_backward(t, bias, n->out->grad, err);
    if (rc < 0 || !n->in[0]->needs_grad)
        return rc;
    rc = tape_grad(t, n->in[0], &beta, err);
    return rc < 0 ? rc : dev->on->view->shuffle_bwd(dev, n->in[0]->grad, beta, n->out->grad, tape_shards(t), err);
}

static struct value *shuffle(struct tape *t, struct value *x, struct param *bias)
{
    struct device *dev = tape_device(t);
    struct tensor *shape;
    struct value *y;

    if (tape_failed(t))
        return NULL;
    shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    for (int s = 0; s < tape_shards(t); s++) {
        shape[s] = x->x[s];
        shape[s].h *= 2;
        shape[s].w *= 2;
        shape[s].c /= 4;
    }
    y = tape_value(t, shape, x->needs_grad || param_trainable(bias), bias->name);
    if (!y || tape_fail(t, dev->on->view->shuffle_fwd(dev, y->x, x->x, bias->data, tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    tape_use(t, bias);
    tape_record(t, shuffle_backward, y, &x, 1, 0, bias);
    return y;
}

struct value *layer_enlarge(struct tape *t, struct value *x, struct param *w, struct param *bias)
{
    struct value *raw = layer_conv(t, x, &(struct conv){ 1, 0 }, w, NULL), *y = shuffle(t, raw, bias);

    tape_drop(t, raw);
    return y;
}
