/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/photo.c - photometric difference of two pictures, and losses
 * that take the least of several candidates. */
#include <assert.h>

#include "worker/layers/depth.h"
#include "worker/layers/layer_op.h"

/* ---- the map ---- */

static void map_shape(const struct layer_call *c, int shard, struct tensor *y)
{
    layer_same_shape(&c->in[0]->x[shard], &c->in[1]->x[shard]);
    assert(y->h >= 2 && y->w >= 2 && y->dtype == DTYPE_F32 && !c->in[0]->act && !c->in[1]->act);
    y->c = 1;
}

static int map_fwd(const struct layer_call *c, struct err *err)
{
    return c->dev->on->photo->map_fwd(c->dev, *(const float *)c->args, c->out->x, c->in[0]->x, c->in[1]->x, c->nshards, err);
}

static int map_bwd(const struct layer_call *c, int i, float beta, struct err *err)
{
    assert(i == 0);
    return c->dev->on->photo->map_bwd(c->dev, *(const float *)c->args, c->in[i]->grad, beta, c->out->grad, c->in[0]->x, c->in[1]->x,
                                      c->nshards, err);
}

static const struct layer_kind map = { "photometric map", READS_INPUTS, map_shape, map_fwd, map_bwd, NULL };

struct value *layer_photometric_map(struct tape *t, struct value *a, struct value *b, float ssim_weight)
{
    struct value *in[2] = { a, b }, *out;

    if (tape_failed(t))
        return NULL;
    if (b->needs_grad)
        in[1] = layer_detach(t, b);
    out = layer_op(t, &map, in, 2, &ssim_weight, sizeof ssim_weight);
    if (in[1] != b)
        tape_drop(t, in[1]);
    return out;
}

/* ---- losses ---- */

/* The number of loss results: one a shard; in TAPE_EVAL one an image. */
static int results(const struct tape *t, const struct value *v)
{
    int n = 0;

    for (int s = 0; s < tape_shards(t); s++)
        n += tape_mode_of(t) == TAPE_TRAIN ? 1 : v->x[s].n;
    return n;
}

static const struct tensor *by_result(struct tape *t, const struct value *v)
{
    struct tensor *x;
    int at = 0;

    if (tape_mode_of(t) == TAPE_TRAIN)
        return v->x;
    x = tape_host(t, (size_t)results(t, v) * sizeof *x);
    for (int s = 0; s < tape_shards(t); s++)
        for (int i = 0; i < v->x[s].n; i++, at++) {
            size_t numbers = (size_t)i * (size_t)v->x[s].h * (size_t)v->x[s].w * (size_t)v->x[s].stride;

            x[at] = v->x[s];
            x[at].n = 1;
            x[at].data = (float *)v->x[s].data + numbers;
        }
    return x;
}

static void check(const struct tape *t, struct value *const *warped, int nwarped, const struct value *target)
{
    assert(nwarped >= 1 && nwarped <= PHOTO_MAX_SOURCES);
    for (int s = 0; s < tape_shards(t); s++) {
        assert(target->x[s].dtype == DTYPE_F32 && target->x[s].n > 0 && !target->act);
        for (int i = 0; i < nwarped; i++) {
            assert(!warped[i]->act);
            layer_same_shape(&target->x[s], &warped[i]->x[s]);
        }
    }
}

/* A value of one channel with v's pixels and no gradient. */
static struct value *map_value(struct tape *t, const struct value *v)
{
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);

    for (int s = 0; s < tape_shards(t); s++) {
        shape[s] = v->x[s];
        shape[s].c = 1;
    }
    return tape_dense(t, shape, "photometric map");
}

/* The intermediate values of a reprojection loss. */
struct maps {
    struct value *map[PHOTO_MAX_SOURCES], *slope[PHOTO_MAX_SOURCES]; /* slope is NULL if the picture needs no gradient */
    struct tensor *dwarped[PHOTO_MAX_SOURCES];
};

static int make_maps(struct tape *t, struct maps *m, struct value *const *warped, int nwarped, struct value *target, float ssim_weight)
{
    struct device *dev = tape_device(t);
    int rc = 0;

    for (int i = 0; i < nwarped && rc >= 0; i++) {
        bool trains = tape_mode_of(t) == TAPE_TRAIN && warped[i]->needs_grad;

        m->map[i] = map_value(t, target);
        m->slope[i] = trains && m->map[i] ? map_value(t, target) : NULL;
        if (!m->map[i] || tape_failed(t))
            return tape_status(t, NULL);
        m->dwarped[i] = m->slope[i] ? m->slope[i]->x : NULL;
        rc = tape_fail(t, dev->on->photo->map_fwd(dev, ssim_weight, m->map[i]->x, warped[i]->x, target->x, tape_shards(t), tape_err(t)),
                       tape_err(t));
    }
    return rc;
}

static int put_slopes(struct tape *t, const struct maps *m, struct value *const *warped, int nwarped, struct value *target,
                      float ssim_weight)
{
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);
    int rc = 0;

    for (int i = 0; i < nwarped && rc >= 0; i++) {
        float beta;

        if (!m->slope[i])
            continue;
        rc = tape_fail(t, tape_grad(t, warped[i], &beta, err), err);
        if (rc >= 0)
            rc = tape_fail(t,
                           dev->on->photo->map_bwd(dev, ssim_weight, warped[i]->grad, beta, m->slope[i]->x, warped[i]->x, target->x,
                                                   tape_shards(t), err),
                           err);
    }
    return rc;
}

int layer_reprojection(struct tape *t, struct value *const *warped, int nwarped, struct value *target, struct value *const *identity,
                       const struct automask_noise *noise, float ssim_weight, float weight, float grad_scale, double *const *ret)
{
    struct photo_maps in = { .nwarped = nwarped, .nidentity = identity ? nwarped : 0 };
    struct device *dev = tape_device(t);
    struct maps m = { { NULL }, { NULL }, { NULL } };
    int rc;

    if (tape_failed(t))
        return tape_status(t, NULL);
    check(t, warped, nwarped, target);
    if (noise && tape_mode_of(t) == TAPE_TRAIN)
        in.noise = *noise;
    rc = make_maps(t, &m, warped, nwarped, target, ssim_weight);
    for (int i = 0; i < nwarped && rc >= 0; i++) {
        in.warped[i] = by_result(t, m.map[i]);
        in.identity[i] = identity ? by_result(t, identity[i]) : NULL;
    }
    if (rc >= 0)
        rc = tape_fail(t,
                       dev->on->photo->least(dev, &in, tape_mode_of(t) == TAPE_TRAIN ? m.dwarped : NULL, weight, grad_scale, ret,
                                             results(t, target), tape_err(t)),
                       tape_err(t));
    if (rc >= 0)
        rc = put_slopes(t, &m, warped, nwarped, target, ssim_weight);
    for (int i = 0; i < nwarped; i++) {
        tape_drop(t, m.map[i]);
        tape_drop(t, m.slope[i]);
    }
    return rc;
}

int layer_photometric_mean(struct tape *t, struct value *x, struct value *target, float ssim_weight, float weight, float grad_scale,
                           double *const *ret)
{
    return layer_reprojection(t, &x, 1, target, NULL, NULL, ssim_weight, weight, grad_scale, ret);
}

int layer_feature_metric(struct tape *t, struct value *const *warped, int nwarped, struct value *target, float weight, float grad_scale,
                         double *const *ret)
{
    bool trains = tape_mode_of(t) == TAPE_TRAIN;
    struct photo_features in = { .nwarped = nwarped };
    struct photo_grads to = { .target = NULL };
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);

    if (tape_failed(t))
        return tape_status(t, NULL);
    check(t, warped, nwarped, target);
    in.target = by_result(t, target);
    for (int i = 0; i < nwarped; i++) {
        in.warped[i] = by_result(t, warped[i]);
        if (!trains || !warped[i]->needs_grad)
            continue;
        if (tape_fail(t, tape_grad(t, warped[i], &to.beta[i], err), err) < 0)
            return err->code;
        to.warped[i] = warped[i]->grad;
    }
    if (trains && target->needs_grad) {
        if (tape_fail(t, tape_grad(t, target, &to.beta_target, err), err) < 0)
            return err->code;
        to.target = target->grad;
    }
    return tape_fail(t, dev->on->photo->nearest(dev, &in, trains ? &to : NULL, weight, grad_scale, ret, results(t, target), err), err);
}
