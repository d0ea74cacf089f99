#include "worker/models/rcnn/settings.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "proto/job/jobspec.h"
#include "worker/models/rcnn/network.h"

static void set_rpn(struct rcnn_settings *r, const struct jobspec *s)
{
    static const double ratio[RCNN_RATIOS] = { 0.5, 1, 2 };
    struct rpn_head *h = &r->rpn;
    float side[RCNN_LEVELS];

    h->nlevels = RCNN_LEVELS;
    h->nratios = RCNN_RATIOS;
    for (int i = 0; i < RCNN_LEVELS; i++) {
        side[i] = (float)s->model_anchors.v[i];
        h->stride[i] = 4 << i;
    }
    rpn_set_anchors(h, side, ratio, r->tv);
    h->infer_stride = r->tv;
    h->pos_iou = 0.7f;
    h->neg_iou = 0.3f;
    h->low_quality = true;
    h->batch = (int)s->model_rpn_batch;
    h->max_positive = (int)((double)s->model_rpn_batch * s->model_rpn_positive);
    h->beta = r->tv ? 1.0f / 9.0f : 0.0f;
    h->count_sampled = r->tv;
}

static struct rpn_selection selection(const struct rcnn_settings *r, const struct jobspec *s, bool train)
{
    return (struct rpn_selection){ .pre = (int)(train ? s->model_rpn_pre_nms : s->model_rpn_pre_nms_val),
                                   .post = (int)(train ? s->model_rpn_post_nms : s->model_rpn_post_nms_val),
                                   .nms = (float)s->model_rpn_nms,
                                   .min_side = r->tv ? 1e-3f : 0.0f,
                                   .keep_min = r->tv,
                                   .sigmoid = r->tv };
}

static void set_head(struct rcnn_settings *r, const struct jobspec *s, int classes)
{
    static const float weights[4] = { 10, 10, 5, 5 };
    struct rcnn_head *h = &r->head;

    h->classes = classes;
    h->background_first = r->tv;
    h->append_truth = true;
    h->fg_iou = 0.5f;
    h->batch = (int)s->model_roi_batch;
    h->max_foreground = (int)((double)s->model_roi_batch * s->model_roi_positive);
    h->max_masks = (int)s->model_mask_rois;
    memcpy(h->weights, weights, sizeof weights);
    h->beta = r->tv ? 1.0f / 9.0f : 0.0f;
    h->mask_side = 2 * (int)s->model_mask_pool;
    h->masks = r->tv ? RCNN_MASKS_OF_BITMAPS : RCNN_MASKS_OF_OUTLINES;
}

void rcnn_settings_of(const struct jobspec *spec, int classes, struct rcnn_settings *r)
{
    memset(r, 0, sizeof *r);
    r->tv = strcmp(spec->model_flavor, "tv") == 0;
    set_rpn(r, spec);
    r->train = selection(r, spec, true);
    r->val = selection(r, spec, false);
    set_head(r, spec, classes);
    r->box_align = pyramid_align(RCNN_BOX_POOL, r->tv ? 2 : 0, !r->tv);
    r->mask_align = pyramid_align((int)spec->model_mask_pool, r->tv ? 2 : 0, !r->tv);
    r->detection =
        (struct rcnn_detection_options){ (float)spec->val_conf, (float)spec->val_nms, r->tv ? 0.01f : 0.0f, (int)spec->val_max_det };
}
