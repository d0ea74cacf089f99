/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/set.h - detection as a set: learned proposals, boxes refined
 * stage by stage, one-to-one matching with the truth, and its losses (Sun et al. 2021, arXiv:2011.12450). All values
 * are f32. Specs sparse_rcnn sections 2.2, 3.7, 4, 5, 6.
 *
 * A shard of n images has R = n * proposals rows; row i * proposals + p is proposal p of image i. Boxes are x1 y1 x2 y2
 * in pixels of the canvas, [R][4] without gaps. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"
#include "worker/ops/norm.h"
#include "worker/ops/rpn.h"

enum { SET_MAX_STAGES = 12, SET_MAX_PROPOSALS = 1000 };

struct set_head {
    int classes, proposals, stages;
    float clamp;                        /* largest logarithm of the growth of a side in a stage */
    bool floor;                         /* -clamp is the smallest */
    float alpha, gamma;                 /* of the focal loss */
    float cls_gain, l1_gain, giou_gain; /* factors of the terms, in matching costs and gradients; terms are without */
    const float *class_weight;          /* [classes], device memory: factor of a class's focal terms; NULL: all 1 */
};

/* Result of the matching in one shard. Device memory. */
struct set_match {
    int32_t *truth; /* [stages][R] row of the shard's truth, or -1 */
    /* [stages][n] predictions that are of no use: a logit, box or cost that is not finite, a box inside out. Their
     * costs count as the largest there is. */
    int32_t *broken;
};

/* The terms of one stage: sums over the pictures, without gains. */
enum set_term {
    SET_CLS,
    SET_L1,
    SET_GIOU,
    SET_PAIRS,  /* matched proposals */
    SET_BROKEN, /* struct set_match */
    SET_TERMS
};

/* clang-format off */
#define SET_OPS(X)                                                                                                                         \
    /* Proposals at the start of every picture. box[v]: [R][4] from boxes [proposals][4], cx cy w h as parts of the                        \
     * picture's size; q[v]: [R, 1, 1, d] from features [proposals][d]. */                                                                 \
    X(set, start_fwd, (struct device *dev, const struct set_head *head, float *const *box, struct tensor *q, const float *boxes,           \
                       const float *features, const struct rcnn_images *images, int nshards, struct err *err),                             \
      (dev, head, box, q, boxes, features, images, nshards, err))                                                                          \
    /* dboxes.dst[v] [proposals][4] and dfeatures.dst[v] [proposals][d] (dst NULL: not wanted; with dev->one_dest as                       \
     * conv's bwd_weights) from dbox[v] [R][4] and dq: one chain over the images, ascending. */                                            \
    X(set, start_bwd, (struct device *dev, const struct set_head *head, struct sums_dest dboxes, struct sums_dest dfeatures,               \
                       const float *const *dbox, const struct tensor *dq, const struct rcnn_images *images, int nshards, struct err *err), \
      (dev, head, dboxes, dfeatures, dbox, dq, images, nshards, err))                                                                      \
    /* ret[v]: [R][4], the boxes moved by deltas [R, 1, 1, 4] with weights 2 2 1 1; not cut to the picture. */                             \
    X(set, decode, (struct device *dev, const struct set_head *head, float *const *ret, const float *const *box,                           \
                    const struct tensor *deltas, int nshards, struct err *err), (dev, head, ret, box, deltas, nshards, err))               \
    /* Matches the boxes of every stage one-to-one with the truth at the least total cost; ties: specs section 4.4.                        \
     * logits [stages][v]: [R, 1, 1, classes]; box[stage][v]: [R][4]. */                                                                   \
    X(set, match, (struct device *dev, const struct set_head *head, const struct set_match *ret, const struct tensor *const *logits,       \
                   const float *const *const *box, const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards,          \
                   struct err *err), (dev, head, ret, logits, box, images, truth, nshards, err))                                           \
    /* The losses of one stage. terms: rows of [SET_TERMS], one a shard, or one an image. In training also the gradients                   \
     * of the weighted sum of cls, l1 and giou, times grad_scale: dlogits, ddeltas, and dbase[v] [R][4] of the boxes                       \
     * that the deltas moved (NULL: not wanted); every number is written. dlogits and ddeltas NULL: validation. base and                   \
     * box: before and after the deltas. */                                                                                                \
    X(set, loss, (struct device *dev, const struct set_head *head, int stage, struct tensor *dlogits, struct tensor *ddeltas,              \
                  float *const *dbase, float grad_scale, double *const *terms, bool by_image, const struct tensor *logits,                 \
                  const struct tensor *deltas, const float *const *base, const float *const *box, const struct set_match *match,           \
                  const struct rcnn_images *images, const struct rcnn_truth *truth, int nshards, struct err *err),                         \
      (dev, head, stage, dlogits, ddeltas, dbase, grad_scale, terms, by_image, logits, deltas, base, box, match, images, truth, nshards,   \
       err))
/* clang-format on */

OPS_FAMILY(set, SET_OPS)
