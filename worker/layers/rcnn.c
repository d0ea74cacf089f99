/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/rcnn.c - regions for training, losses of the box and mask
 * heads, detections. */
#include "worker/layers/rcnn.h"

#include <assert.h>
#include <stdlib.h>

#include "worker/kernels/delta.h"
#include "worker/layers/layer_op.h"
#include "worker/ops/families.h"

enum { CANDIDATES = 4096 }; /* room for candidates of an image at first */

static bool sample_memory(struct tape *t, struct rcnn_samples *s, int images, int cap, int mask_cap)
{
    const struct {
        int32_t **to;
        size_t n;
    } ints[] = { { &s->image, (size_t)cap },           { &s->label, (size_t)cap },
                 { &s->truth, (size_t)cap },           { &s->offset, (size_t)images + 1 },
                 { &s->mask_image, (size_t)mask_cap }, { &s->mask_label, (size_t)mask_cap },
                 { &s->mask_truth, (size_t)mask_cap }, { &s->mask_offset, (size_t)images + 1 } };

    s->cap = cap;
    s->mask_cap = mask_cap;
    s->box = tape_device_mem(t, (size_t)cap * 4 * sizeof(float), "regions");
    s->mask_box = tape_device_mem(t, (size_t)(mask_cap ? mask_cap : 1) * 4 * sizeof(float), "regions");
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        *ints[i].to = tape_device_mem(t, (ints[i].n ? ints[i].n : 1) * sizeof(int32_t), "regions");
        if (!*ints[i].to)
            return false;
    }
    return s->box && s->mask_box;
}

const struct rcnn_samples *layer_rcnn_sample(struct tape *t, const struct rcnn_head *head, const struct rcnn_images *images,
                                             const struct rcnn_truth *truth, const struct rpn_proposals *proposals,
                                             const struct philox_key *foreground, const struct philox_key *background)
{
    struct device *dev = tape_device(t);
    struct rcnn_samples *ret;

    if (tape_failed(t))
        return NULL;
    ret = tape_host(t, (size_t)tape_shards(t) * sizeof *ret);
    for (int s = 0; s < tape_shards(t); s++)
        if (!sample_memory(t, &ret[s], images[s].n, images[s].n * head->batch, images[s].n * head->max_masks))
            return NULL;
    if (tape_fail(t, dev->on->rcnn->sample(dev, head, images, truth, proposals, foreground, background, ret, tape_shards(t), tape_err(t)),
                  tape_err(t)) < 0)
        return NULL;
    return ret;
}

int layer_rcnn_box_loss(struct tape *t, struct value *logits, struct value *deltas, const struct rcnn_head *head,
                        const struct rcnn_images *images, const struct rcnn_truth *truth, const struct rcnn_samples *samples,
                        float grad_scale, double *const *terms)
{
    struct device *dev = tape_device(t);
    struct tensor *dlogits, *ddeltas;
    int rc;

    if (tape_failed(t))
        return tape_status(t, NULL);
    for (int s = 0; s < tape_shards(t); s++) {
        assert(logits->x[s].dtype == DTYPE_F32 && deltas->x[s].dtype == DTYPE_F32 && !logits->act && !deltas->act);
        assert(logits->x[s].c == head->classes + 1 && deltas->x[s].c == rcnn_box_columns(head));
        assert(tensor_pixels(&logits->x[s]) == (size_t)samples[s].cap && tensor_pixels(&deltas->x[s]) == (size_t)samples[s].cap);
    }
    rc = layer_loss_grad(t, logits, &dlogits);
    if (rc >= 0)
        rc = layer_loss_grad(t, deltas, &ddeltas);
    if (rc < 0)
        return rc;
    return tape_fail(t,
                     dev->on->rcnn->box_loss(dev, head, images, truth, dlogits, ddeltas, grad_scale, terms, tape_mode_of(t) == TAPE_EVAL,
                                             logits->x, deltas->x, samples, tape_shards(t), tape_err(t)),
                     tape_err(t));
}

int layer_rcnn_mask_loss(struct tape *t, struct value *logits, const struct rcnn_head *head, const struct rcnn_images *images,
                         const struct rcnn_outlines *outlines, const struct rcnn_samples *samples, float grad_scale, double *const *terms)
{
    struct device *dev = tape_device(t);
    struct err *err = tape_err(t);
    struct tensor *dlogits;
    float **target;

    if (tape_failed(t))
        return tape_status(t, NULL);
    assert(head->mask_side > 0 && head->mask_side <= RCNN_MAX_MASK_SIDE);
    target = tape_host(t, (size_t)tape_shards(t) * sizeof *target);
    for (int s = 0; s < tape_shards(t); s++) {
        size_t cells = (size_t)samples[s].mask_cap * (size_t)rcnn_mask_cells(head);

        assert(logits->x[s].dtype == DTYPE_F32 && !logits->act && logits->x[s].c == rcnn_mask_channels(head));
        assert(tensor_pixels(&logits->x[s]) == cells);
        target[s] = tape_device_mem(t, (cells ? cells : 1) * sizeof(float), "mask targets");
        if (!target[s])
            return err->code;
    }
    if (layer_loss_grad(t, logits, &dlogits) < 0 ||
        tape_fail(t, dev->on->rcnn->mask_targets(dev, head, images, outlines, (float *const *)target, samples, tape_shards(t), err), err) <
            0)
        return err->code;
    return tape_fail(t,
                     dev->on->rcnn->mask_loss(dev, head, images, dlogits, grad_scale, terms, tape_mode_of(t) == TAPE_EVAL, logits->x,
                                              (const float *const *)target, samples, tape_shards(t), err),
                     err);
}

/* ---- detections ---- */

static int by_score(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

static bool suppressed(const struct candidate *kept, int nkept, const struct candidate *c, float thresh)
{
    struct box b = { c->x1, c->y1, c->x2, c->y2 };

    for (int i = 0; i < nkept; i++) {
        struct box k = { kept[i].x1, kept[i].y1, kept[i].x2, kept[i].y2 };

        if (kept[i].cls == c->cls && box_suppresses(k, box_area(k), b, box_area(b), thresh))
            return true;
    }
    return false;
}

/* All candidates of the image. The caller frees the memory. */
static int all_candidates(struct device *dev, const struct rcnn_head *head, const struct rcnn_detection_options *opt,
                          const struct rcnn_images *images, const struct tensor *logits, const struct tensor *deltas,
                          const struct rpn_proposals *proposals, int image, struct candidate **ret, int *ret_count, struct err *err)
{
    int cap = CANDIDATES, rc;

    *ret = malloc((size_t)cap * sizeof **ret);
    if (!*ret)
        return err_set(err, ERR_DEVICE, "out of memory: detections");
    rc = dev->on->rcnn->decode(dev, head, images, logits, deltas, proposals, image, opt->score, opt->min_side, *ret, cap, ret_count, err);
    if (rc >= 0 && *ret_count > cap) {
        free(*ret);
        cap = *ret_count;
        *ret = malloc((size_t)cap * sizeof **ret);
        if (!*ret)
            return err_set(err, ERR_DEVICE, "out of memory: %d detections", cap);
        rc = dev->on->rcnn->decode(dev, head, images, logits, deltas, proposals, image, opt->score, opt->min_side, *ret, cap, ret_count,
                                   err);
    }
    if (rc < 0)
        free(*ret);
    return rc;
}

int rcnn_detect(struct device *dev, const struct rcnn_head *head, const struct rcnn_detection_options *opt,
                const struct rcnn_images *images, const struct tensor *logits, const struct tensor *deltas,
                const struct rpn_proposals *proposals, int image, struct candidate *ret, int *ret_count, struct err *err)
{
    struct candidate *all;
    int count, kept = 0, rc = all_candidates(dev, head, opt, images, logits, deltas, proposals, image, &all, &count, err);

    if (rc < 0)
        return rc;
    if (count > 1)
        qsort(all, (size_t)count, sizeof *all, by_score);
    for (int i = 0; i < count && kept < opt->max; i++)
        if (!suppressed(ret, kept, &all[i], opt->nms))
            ret[kept++] = all[i];
    free(all);
    *ret_count = kept;
    return 0;
}
