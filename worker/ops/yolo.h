/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/yolo.h - the heads of YOLOv3: losses with their gradients, and
 * candidate boxes. */
#pragma once
#include <stdbool.h>

#include "worker/core/canvas.h"
#include "worker/core/device.h"
#include "worker/ops/candidate.h"
#include "worker/ops/family.h"

/* A YOLO head; see specs yolov3 section 4. All lengths in pixels of the network input. */
enum { YOLO_MAX_ANCHORS = 32 };
struct yolo_head {
    int nanchors, mask[YOLO_MAX_ANCHORS]; /* anchors of this head, as indices into anchor[] */
    int ntotal;
    float anchor[YOLO_MAX_ANCHORS][2]; /* all anchors of the network, w and h */
    int classes;
    float ignore_thresh, truth_thresh, assign_iou_thresh;
    float box_gain, obj_gain, noobj_gain, cls_gain;
    float scale_xy; /* a centre may lie (scale_xy - 1) / 2 cells outside its cell; 1: it stays within */
    /* sides are (2 p)^2 anchors and losses are squared differences of logistics p, else exp(z) anchors and
     * cross-entropy */
    bool new_coords;
    const float *class_weight; /* [classes] of device memory, factors of their terms and slopes; NULL: all are 1 */
};

/* Ground truth of the b images of one shard as an offset list: image i owns rows offset[i] .. offset[i + 1] - 1. Empty
 * images are legal. Device memory. */
struct box_list {
    const int32_t *offset; /* [b + 1] */
    const int32_t *cls;    /* [rows] */
    const float *box;      /* [rows][4]: centre x, centre y, width, height, divided by the network input's sides */
    int rows;
};

/* Loss terms of a head, summed over the images of a shard, unweighted; YOLO_TOTAL is the optimised objective (weighted
 * by the gains). */
enum yolo_term {
    YOLO_BOX,
    YOLO_OBJ,
    YOLO_NOOBJ,
    YOLO_CLS,
    YOLO_TOTAL,
    YOLO_POSITIVES,
    YOLO_IGNORED,
    YOLO_SUM_IOU,
    YOLO_RECALL50,
    YOLO_RECALL75,
    YOLO_SUM_OBJ_POS,
    YOLO_TERMS
};

/* clang-format off */
#define YOLO_OPS(X)                                                                                                                        \
    /* net: [nshards] the network's input of each shard. dlogits (NULL in validation) = grad_scale * d total / d logits,                   \
     * every element written. terms[v]: [YOLO_TERMS] doubles. */                                                                           \
    X(yolo, loss, (struct device *dev, const struct yolo_head *head, const struct canvas *net, struct tensor *dlogits, float grad_scale,   \
             double *const *terms, const struct tensor *logits, const struct box_list *truth, int nshards, struct err *err),               \
      (dev, head, net, dlogits, grad_scale, terms, logits, truth, nshards, err))                                                           \
    /* Candidates with score > conf of image i of one shard, in slot order then class; writes at most cap; *ret_count is                   \
     * the number found (may pass cap). Host memory; waits. */                                                                             \
    X(yolo, decode, (struct device *dev, const struct yolo_head *head, struct canvas net, const struct tensor *logits, int image,          \
               float conf, int first_slot, struct candidate *ret, int cap, int *ret_count, struct err *err),                               \
      (dev, head, net, logits, image, conf, first_slot, ret, cap, ret_count, err))
/* clang-format on */

OPS_FAMILY(yolo, YOLO_OPS)
