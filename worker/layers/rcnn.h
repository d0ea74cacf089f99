/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/rcnn.h - layers between the convolutions of a two-stage
 * detector. Selections and losses are computed at once; a loss puts the gradient on the logits it is given, times
 * grad_scale, and records nothing. Only rcnn_detect() waits for the device. Once the tape has failed, functions return
 * NULL or the sticky error, and accept NULL. Arrays have an entry for each local shard, unless their comment says
 * otherwise. Memory is the tape's, until the next tape_begin().
 *
 * In training terms and normalisers are a shard's, in TAPE_EVAL an image's: terms then has a row for each image, shard
 * after shard. Keys are model_key()'s of each image, shard after shard. */
#pragma once
#include "worker/layers/tape.h"
#include "worker/ops/rcnn.h"

/* rpn.c */

/* Anchors of one side a level, of every ratio h / w in the given order. rounded: whole pixels like torchvision's; else
 * exact. */
void rpn_set_anchors(struct rpn_head *head, const float *side, const double *ratio, bool rounded);
/* The anchors drawn for each shard. logits: [nlevels], only their shapes are read. */
const struct rpn_samples *layer_rpn_sample(struct tape *t, struct value *const *logits, const struct rpn_head *head,
                                           const struct rcnn_images *images, const struct rcnn_truth *truth,
                                           const struct philox_key *positive, const struct philox_key *negative);
/* Proposals of each shard; no gradient goes through them. */
const struct rpn_proposals *layer_rpn_propose(struct tape *t, struct value *const *logits, struct value *const *deltas,
                                              const struct rpn_head *head, const struct rpn_selection *sel,
                                              const struct rcnn_images *images);
/* terms: rows of [RPN_TERMS]. proposals: of this pass, so that in training the loss shows that they are not finite; or
 * NULL. Logits are f32. */
int layer_rpn_loss(struct tape *t, struct value *const *logits, struct value *const *deltas, const struct rpn_head *head,
                   const struct rcnn_images *images, const struct rcnn_truth *truth, const struct rpn_samples *samples,
                   const struct rpn_proposals *proposals, float grad_scale, double *const *terms);

/* rcnn.c */

/* The regions drawn for each shard. */
const struct rcnn_samples *layer_rcnn_sample(struct tape *t, const struct rcnn_head *head, const struct rcnn_images *images,
                                             const struct rcnn_truth *truth, const struct rpn_proposals *proposals,
                                             const struct philox_key *foreground, const struct philox_key *background);
/* terms: rows of [RCNN_BOX_TERMS]. logits [cap, 1, 1, classes + 1], deltas [cap, 1, 1, rcnn_box_columns()], f32. */
int layer_rcnn_box_loss(struct tape *t, struct value *logits, struct value *deltas, const struct rcnn_head *head,
                        const struct rcnn_images *images, const struct rcnn_truth *truth, const struct rcnn_samples *samples,
                        float grad_scale, double *const *terms);
/* terms: rows of [RCNN_MASK_TERMS]. logits [mask_cap, mask_side, mask_side, rcnn_mask_channels()], f32. */
int layer_rcnn_mask_loss(struct tape *t, struct value *logits, const struct rcnn_head *head, const struct rcnn_images *images,
                         const struct rcnn_outlines *outlines, const struct rcnn_samples *samples, float grad_scale, double *const *terms);

struct rcnn_detection_options {
    float score, nms; /* lowest score, exclusive; IoU above which the lesser box of a class is dropped */
    float min_side;   /* d2: 0; tv: 0.01 */
    int max;          /* detections of an image */
};

/* The detections in one image of a shard, best first, in pixels of the canvas: at most opt->max boxes in ret,
 * *ret_count of them. images, proposals, logits and deltas are that shard's; the logits belong to its proposals. slot =
 * row * classes + class, the row being the proposal's in the shard. Waits for the device. Returns 0 or a code with *err
 * filled. */
int rcnn_detect(struct device *dev, const struct rcnn_head *head, const struct rcnn_detection_options *opt,
                const struct rcnn_images *images, const struct tensor *logits, const struct tensor *deltas,
                const struct rpn_proposals *proposals, int image, struct candidate *ret, int *ret_count, struct err *err);
