/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/warp.c - poses, and pictures as seen by another camera. */
#include <assert.h>
#include <string.h>

#include "worker/layers/depth.h"
#include "worker/layers/layer_op.h"

/* ---- poses ---- */

static void pose_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    assert(y->h == 1 && y->w == 1 && y->c == POSE_IN && y->dtype == DTYPE_F32 && !c->in[0]->act);
    (void)c, (void)shard;
    y->c = POSE_OUT;
}

static int pose_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->warp->pose_fwd(c->dev, *(const bool *)c->args, c->out->x, c->in[0]->x, c->nshards, err);
}

static int pose_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    return c->dev->on->warp->pose_bwd(c->dev, *(const bool *)c->args, c->in[i]->grad, beta, c->out->grad, c->in[0]->x, c->nshards, err);
}

static const struct layer_kind pose = { "pose", READS_INPUTS, pose_shape, pose_fwd, pose_bwd, NULL };

struct value *layer_pose(struct tape *t, struct value *v, bool invert)
{
    return layer_op(t, &pose, &v, 1, &invert, sizeof invert);
}

/* ---- warps ---- */

enum { SOURCE, DISP, POSE, INPUTS };

struct recorded {
    struct warp w;
    const float **camera; /* [nshards] */
};

static struct warp_in inputs(struct value *const *in, const float *const *camera)
{
    return (struct warp_in){ in[SOURCE]->x, in[DISP]->x, in[POSE]->x, camera };
}

/* One call computes the gradients of disparities and poses, another that of the source. */
static int backward(struct tape *t, struct node *n, struct err *err)
{
    const struct recorded *r = n->ctx;
    const struct warp_in in = inputs(n->in, r->camera);
    struct device *dev = tape_device(t);
    struct tensor *grad[INPUTS] = { NULL };
    float beta[INPUTS] = { 0 };
    int rc = 0;

    for (int i = 0; i < INPUTS && rc >= 0; i++) {
        if (!n->in[i]->needs_grad)
            continue;
        rc = tape_grad(t, n->in[i], &beta[i], err);
        grad[i] = n->in[i]->grad;
    }
    if (rc >= 0 && (grad[DISP] || grad[POSE]))
        rc = dev->on->warp->bwd(dev, &r->w, grad[DISP], beta[DISP], grad[POSE], beta[POSE], n->out->grad, &in, tape_shards(t), err);
    if (rc >= 0 && grad[SOURCE])
        rc = dev->on->warp->bwd_source(dev, &r->w, grad[SOURCE], beta[SOURCE], n->out->grad, &in, tape_shards(t), err);
    return rc;
}

static void check(const struct tape *t, struct value *const *in)
{
    for (int s = 0; s < tape_shards(t); s++) {
        const struct tensor *source = &in[SOURCE]->x[s], *disp = &in[DISP]->x[s], *of = &in[POSE]->x[s];

        assert(source->n == disp->n && source->h == disp->h && source->w == disp->w && disp->c == 1);
        assert(of->n == disp->n && of->h == 1 && of->w == 1 && of->c == POSE_OUT);
        assert(source->dtype == DTYPE_F32 && disp->dtype == DTYPE_F32 && of->dtype == DTYPE_F32);
        assert((size_t)source->h * (size_t)source->w * (size_t)source->stride < INT32_MAX); /* cells of an image are counted in 32 bits */
        (void)source, (void)disp, (void)of;
    }
    assert(!in[SOURCE]->act && !in[DISP]->act && !in[POSE]->act);
}

struct value *layer_warp(struct tape *t, struct value *source, struct value *disp, struct value *pose_of, const float *const *camera,
                         const struct warp *w)
{
    struct value *in[INPUTS] = { source, disp, pose_of }, *out;
    size_t bytes = (size_t)tape_shards(t) * sizeof *camera;
    struct device *dev = tape_device(t);
    struct recorded *r;
    struct warp_in read;

    if (tape_failed(t))
        return NULL;
    check(t, in);
    out = tape_value(t, source->x, source->needs_grad || disp->needs_grad || pose_of->needs_grad, "warp");
    if (!out)
        return NULL;
    r = tape_host(t, sizeof *r);
    r->w = *w;
    r->camera = tape_host(t, bytes);
    memcpy(r->camera, camera, bytes);
    read = inputs(in, r->camera);
    if (tape_fail(t, dev->on->warp->fwd(dev, w, out->x, &read, tape_shards(t), tape_err(t)), tape_err(t)) < 0)
        return NULL;
    tape_record(t, backward, out, in, INPUTS, READS_INPUTS, r);
    return out;
}
