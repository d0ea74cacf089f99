/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/set.c - proposals, boxes, matching and losses of detection as
 * a set, over the shards of a wave. */
#include "worker/layers/sparse.h"

#include <assert.h>

#include "worker/layers/layer_op.h"

struct start_ctx {
    struct set_head head;
    struct param *param[2]; /* boxes, features */
    const struct rcnn_images *images;
    const float *const *dbox;
};

/* [shards] rows[shard].n boxes */
static float *const *box_memory(struct tape *t, const struct tensor *rows)
{
    float **ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);

    for (int s = 0; s < tape_shards(t); s++)
        ret[s] = tape_device_mem(t, ((size_t)rows[s].n + 1) * 4 * sizeof(float), "boxes");
    return tape_failed(t) ? NULL : ret;
}

static int start_backward(struct tape *t, struct node *n, struct err *err)
{
    const struct start_ctx *c = n->ctx;
    struct device *dev = tape_device(t);
    struct sums_dest dest[2] = { { NULL, 0.0f }, { NULL, 0.0f } };
    int rc;

    for (int i = 0; i < 2; i++) {
        if (param_trainable(c->param[i]))
            dest[i].dst = tape_grad_dest(t, c->param[i], &dest[i].beta, err);
        if (param_trainable(c->param[i]) && !dest[i].dst)
            return err->code;
    }
    rc = dev->on->set->start_bwd(dev, &c->head, dest[0], dest[1], c->dbox, n->out->grad, c->images, tape_shards(t), err);
    for (int i = 0; i < 2 && rc >= 0; i++)
        rc = dest[i].dst ? tape_grad_done(t, c->param[i], err) : 0;
    return rc;
}

const struct set_start *layer_set_start(struct tape *t, const struct set_head *head, struct param *boxes, struct param *features,
                                        const struct rcnn_images *images)
{
    struct device *dev = tape_device(t);
    struct tensor *shape = tape_host(t, (size_t)tape_shards(t) * sizeof *shape);
    struct set_start *ret = tape_host(t, sizeof *ret);
    struct start_ctx *c = tape_host(t, sizeof *c);

    if (tape_failed(t))
        return NULL;
    assert(head->stages > 0 && head->stages <= SET_MAX_STAGES && head->proposals > 0 && head->proposals <= SET_MAX_PROPOSALS);
    assert(boxes->k == head->proposals && boxes->c == 4 && features->k == head->proposals);
    for (int s = 0; s < tape_shards(t); s++)
        shape[s] = tensor_f32(NULL, images[s].n * head->proposals, 1, 1, features->c);
    ret->q = tape_value(t, shape, param_trainable(boxes) || param_trainable(features), "proposals");
    ret->box = box_memory(t, shape);
    if (tape_mode_of(t) == TAPE_TRAIN)
        ret->dbox = box_memory(t, shape);
    if (tape_failed(t) ||
        tape_fail(t,
                  dev->on->set->start_fwd(dev, head, ret->box, ret->q->x, boxes->data, features->data, images, tape_shards(t), tape_err(t)),
                  tape_err(t)) < 0)
        return NULL;
    *c = (struct start_ctx){ *head, { boxes, features }, images, (const float *const *)ret->dbox };
    tape_use(t, boxes);
    tape_use(t, features);
    tape_record(t, start_backward, ret->q, NULL, 0, 0, c);
    return ret;
}

/* images NULL: any number of them. */
static void check_rows(struct tape *t, const struct value *v, const struct set_head *head, const struct rcnn_images *images, int c)
{
    for (int s = 0; s < tape_shards(t); s++) {
        assert(v->x[s].dtype == DTYPE_F32 && !v->act && v->x[s].c == c && v->x[s].h == 1 && v->x[s].w == 1);
        assert(!images || v->x[s].n == images[s].n * head->proposals);
    }
    (void)v, (void)head, (void)images, (void)c;
}

float *const *layer_set_decode(struct tape *t, const struct set_head *head, float *const *box, struct value *deltas)
{
    struct device *dev = tape_device(t);
    float *const *ret;
    int rc;

    if (tape_failed(t))
        return NULL;
    check_rows(t, deltas, head, NULL, 4);
    ret = box_memory(t, deltas->x);
    if (!ret)
        return NULL;
    rc = dev->on->set->decode(dev, head, ret, (const float *const *)box, deltas->x, tape_shards(t), tape_err(t));
    return tape_fail(t, rc, tape_err(t)) < 0 ? NULL : ret;
}

const struct set_match *layer_set_match(struct tape *t, const struct set_head *head, struct value *const *logits, float *const *const *box,
                                        const struct rcnn_images *images, const struct rcnn_truth *truth)
{
    struct device *dev = tape_device(t);
    const struct tensor **z = tape_host(t, (size_t)head->stages * sizeof *z);
    struct set_match *ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);
    int rc;

    for (int i = 0; i < head->stages && !tape_failed(t); i++) {
        check_rows(t, logits[i], head, images, head->classes);
        z[i] = logits[i]->x;
    }
    for (int s = 0; s < tape_shards(t); s++) {
        size_t n = (size_t)head->stages * (size_t)images[s].n + 1;

        ret[s].truth = tape_device_mem(t, n * (size_t)head->proposals * sizeof(int32_t), "matches");
        ret[s].broken = tape_device_mem(t, n * sizeof(int32_t), "matches");
    }
    if (tape_failed(t))
        return NULL;
    rc = dev->on->set->match(dev, head, ret, z, (const float *const *const *)box, images, truth, tape_shards(t), tape_err(t));
    return tape_fail(t, rc, tape_err(t)) < 0 ? NULL : ret;
}

int layer_set_loss(struct tape *t, const struct set_head *head, const struct set_stage *stage, const struct set_match *match,
                   const struct rcnn_images *images, const struct rcnn_truth *truth, float grad_scale, double *const *terms)
{
    const float *const *base = (const float *const *)stage->base, *const *box = (const float *const *)stage->box;
    struct device *dev = tape_device(t);
    struct tensor *dz, *dd;

    if (tape_failed(t))
        return tape_status(t, NULL);
    check_rows(t, stage->logits, head, images, head->classes);
    check_rows(t, stage->deltas, head, images, 4);
    if (layer_loss_grad(t, stage->logits, &dz) < 0 || layer_loss_grad(t, stage->deltas, &dd) < 0)
        return tape_status(t, NULL);
    return tape_fail(t,
                     dev->on->set->loss(dev, head, stage->stage, dz, dd, stage->dbase, grad_scale, terms, tape_mode_of(t) == TAPE_EVAL,
                                        stage->logits->x, stage->deltas->x, base, box, match, images, truth, tape_shards(t), tape_err(t)),
                     tape_err(t));
}
