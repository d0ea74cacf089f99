/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/rpn.c - anchors, their losses and proposals, over the shards
 * of a wave. */
#include <assert.h>
#include <math.h>
#include <stddef.h>

#include "worker/layers/rcnn.h"
#include "worker/ops/families.h"

/* Rounds half to even, as the source does. Sides of anchors are far below 2^22. */
static float whole(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */

    return x + magic - magic;
}

static void set_cell(float cell[4], float side, double ratio, bool rounded)
{
    double w = sqrt((double)side * (double)side / ratio), h = ratio * w;
    float root = sqrtf((float)ratio), half_w = 1.0f / root * side / 2.0f, half_h = root * side / 2.0f;

    cell[2] = rounded ? whole(half_w) : (float)(w / 2.0);
    cell[3] = rounded ? whole(half_h) : (float)(h / 2.0);
    cell[0] = -cell[2];
    cell[1] = -cell[3];
}

void rpn_set_anchors(struct rpn_head *head, const float *side, const double *ratio, bool rounded)
{
    for (int l = 0; l < head->nlevels; l++)
        for (int r = 0; r < head->nratios; r++)
            set_cell(head->cell[l][r], side[l], ratio[r], rounded);
}

static int count_rows(const struct tape *t, const struct rcnn_images *images)
{
    int n = 0;

    for (int s = 0; s < tape_shards(t); s++)
        n += images[s].n;
    return n;
}

/* [nlevels][shards]: tensors of values, or, with grads, of their gradients. */
static const struct tensor **tensors_of(struct tape *t, struct value *const *v, const struct rpn_head *head, bool grads)
{
    const struct tensor **x = tape_host(t, (size_t)head->nlevels * sizeof *x);

    for (int l = 0; l < head->nlevels; l++)
        x[l] = grads ? v[l]->grad : v[l]->x;
    return x;
}

static void check_shapes(struct tape *t, struct value *const *logits, struct value *const *deltas, const struct rpn_head *head,
                         const struct rcnn_images *images)
{
    assert(head->nlevels > 0 && head->nlevels <= RPN_MAX_LEVELS && head->nratios > 0 && head->nratios <= RPN_MAX_RATIOS);
    for (int l = 0; l < head->nlevels; l++)
        for (int s = 0; s < tape_shards(t); s++) {
            const struct tensor *z = &logits[l]->x[s], *d = deltas ? &deltas[l]->x[s] : z;

            assert(z->dtype == DTYPE_F32 && d->dtype == DTYPE_F32 && !logits[l]->act && !(deltas && deltas[l]->act));
            assert(z->n == images[s].n && z->c == head->nratios && (!deltas || d->c == 4 * head->nratios));
            assert(d->n == z->n && d->h == z->h && d->w == z->w);
            (void)z, (void)d;
        }
}

const struct rpn_samples *layer_rpn_sample(struct tape *t, struct value *const *logits, const struct rpn_head *head,
                                           const struct rcnn_images *images, const struct rcnn_truth *truth,
                                           const struct philox_key *positive, const struct philox_key *negative)
{
    struct device *dev = tape_device(t);
    struct rpn_samples *ret;

    if (tape_failed(t))
        return NULL;
    check_shapes(t, logits, NULL, head, images);
    ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);
    for (int s = 0; s < tape_shards(t); s++) {
        size_t rows = (size_t)images[s].n * (size_t)head->batch;

        ret[s].anchor = tape_device_mem(t, rows * sizeof(int32_t), "anchors");
        ret[s].truth = tape_device_mem(t, rows * sizeof(int32_t), "anchors");
        ret[s].count = tape_device_mem(t, 2 * (size_t)images[s].n * sizeof(int32_t), "anchors");
        if (!ret[s].count || !ret[s].truth || !ret[s].anchor)
            return NULL;
    }
    if (tape_fail(t,
                  dev->on->rpn->sample(dev, head, images, truth, tensors_of(t, logits, head, false), positive, negative, ret,
                                       tape_shards(t), tape_err(t)),
                  tape_err(t)) < 0)
        return NULL;
    return ret;
}

static bool proposal_memory(struct tape *t, struct rpn_proposals *p, int images, int cap)
{
    p->cap = cap;
    p->box = tape_device_mem(t, (size_t)cap * 4 * sizeof(float), "proposals");
    p->score = tape_device_mem(t, (size_t)cap * sizeof(float), "proposals");
    p->image = tape_device_mem(t, (size_t)cap * sizeof(int32_t), "proposals");
    p->offset = tape_device_mem(t, ((size_t)images + 1) * sizeof(int32_t), "proposals");
    p->broken = tape_device_mem(t, sizeof(int32_t), "proposals");
    return p->box && p->score && p->image && p->offset && p->broken;
}

const struct rpn_proposals *layer_rpn_propose(struct tape *t, struct value *const *logits, struct value *const *deltas,
                                              const struct rpn_head *head, const struct rpn_selection *sel,
                                              const struct rcnn_images *images)
{
    struct device *dev = tape_device(t);
    struct rpn_proposals *ret;

    if (tape_failed(t))
        return NULL;
    check_shapes(t, logits, deltas, head, images);
    assert(sel->pre > 0 && sel->pre <= RPN_MAX_PRE && sel->post > 0 && sel->post <= RPN_MAX_POST);
    ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);
    for (int s = 0; s < tape_shards(t); s++)
        if (!proposal_memory(t, &ret[s], images[s].n, images[s].n * sel->post))
            return NULL;
    if (tape_fail(t,
                  dev->on->rpn->propose(dev, head, sel, images, tensors_of(t, logits, head, false), tensors_of(t, deltas, head, false), ret,
                                        tape_shards(t), tape_err(t)),
                  tape_err(t)) < 0)
        return NULL;
    return ret;
}

/* Memory for the gradients of all levels. */
static int grads_of(struct tape *t, struct value *const *v, const struct rpn_head *head)
{
    float beta;

    for (int l = 0; l < head->nlevels; l++)
        if (tape_fail(t, tape_grad(t, v[l], &beta, tape_err(t)), tape_err(t)) < 0)
            return tape_err(t)->code;
    return 0;
}

int layer_rpn_loss(struct tape *t, struct value *const *logits, struct value *const *deltas, const struct rpn_head *head,
                   const struct rcnn_images *images, const struct rcnn_truth *truth, const struct rpn_samples *samples,
                   const struct rpn_proposals *proposals, float grad_scale, double *const *terms)
{
    struct device *dev = tape_device(t);
    bool train = tape_mode_of(t) == TAPE_TRAIN, grad = train;
    const int32_t **broken = NULL;
    int rc = 0;

    if (tape_failed(t))
        return tape_status(t, NULL);
    check_shapes(t, logits, deltas, head, images);
    assert(count_rows(t, images) > 0);
    for (int l = 0; l < head->nlevels; l++)
        grad = grad && logits[l]->needs_grad && deltas[l]->needs_grad;
    if (train && proposals)
        broken = tape_host(t, (size_t)tape_shards(t) * sizeof *broken);
    for (int s = 0; broken && s < tape_shards(t); s++)
        broken[s] = proposals[s].broken;
    if (grad)
        rc = grads_of(t, logits, head);
    if (grad && rc >= 0)
        rc = grads_of(t, deltas, head);
    if (rc < 0)
        return rc;
    return tape_fail(t,
                     dev->on->rpn->loss(dev, head, images, truth, grad ? (struct tensor *const *)tensors_of(t, logits, head, true) : NULL,
                                        grad ? (struct tensor *const *)tensors_of(t, deltas, head, true) : NULL, grad_scale, terms, !train,
                                        tensors_of(t, logits, head, false), tensors_of(t, deltas, head, false), samples, broken,
                                        tape_shards(t), tape_err(t)),
                     tape_err(t));
}
