/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/rcnn.h - the second stage of two-stage detectors: draws the
 * regions for training, computes losses of the box and mask heads, decodes detections.
 *
 * Classes are 0 .. classes - 1, and `classes` is the background, for both orders of the logits' columns. With
 * background_first column 0 is the background's and column c + 1 that of class c; else class c has column c and the
 * background the last. All values are f32. Source: specs rcnn sections 4.1, 4.5, 5, 6.1. */
#pragma once
#include "worker/ops/candidate.h"
#include "worker/ops/rpn.h"

enum { RCNN_MAX_MASK_SIDE = 64, RCNN_MAX_MASK_CELLS = RCNN_MAX_MASK_SIDE * RCNN_MAX_MASK_SIDE };

enum rcnn_masks {
    /* polygons are drawn anew on the cells of the region, runs are sampled and cut at 1/2: 0 or 1 */
    RCNN_MASKS_OF_OUTLINES,
    RCNN_MASKS_OF_BITMAPS, /* both become bitmaps of the picture, sampled without alignment: 0 .. 1 */
};

struct rcnn_head {
    int classes;
    /* torchvision's columns; the box deltas of classes then also begin with the background's */
    bool background_first;
    bool agnostic;             /* 4 box deltas a row, the same for all classes */
    bool append_truth;         /* the images' own boxes are proposals too, after the others */
    float fg_iou;              /* smallest IoU of a foreground region */
    int batch, max_foreground; /* regions drawn per image, foreground among them */
    int max_masks;             /* foreground regions per image for the mask head: the ones drawn first */
    float weights[4];          /* of deltas: x y w h */
    float beta;                /* of smooth L1; 0: L1 */
    enum rcnn_masks masks;
    int mask_side;             /* cells of a mask along either axis, at most RCNN_MAX_MASK_SIDE */
    const float *class_weight; /* [classes], device memory: factor of a row's loss by its label; NULL: all 1 */
};

/* Columns of the two outputs of the box head. */
static inline int rcnn_box_columns(const struct rcnn_head *h)
{
    return h->agnostic ? 4 : 4 * (h->classes + (h->background_first ? 1 : 0));
}

/* Channels of the mask head's output. */
static inline int rcnn_mask_channels(const struct rcnn_head *h)
{
    return h->classes + (h->background_first ? 1 : 0);
}

static inline int rcnn_mask_cells(const struct rcnn_head *h)
{
    return h->mask_side * h->mask_side;
}

/* The regions drawn for the images of one shard, in the order of their proposals, and the regions for the mask head.
 * Device memory, written whole: zeros beyond the counts. */
struct rcnn_samples {
    int cap, mask_cap; /* n * head->batch, n * head->max_masks */
    float *box;        /* [cap][4] */
    int32_t *image;    /* [cap] in the shard */
    int32_t *label;    /* [cap] class, or head->classes */
    /* [cap] row of the shard's truth matched to a foreground region, else -1 */
    int32_t *truth;
    int32_t *offset;                               /* [n + 1]: image i owns rows offset[i] .. offset[i + 1] - 1 */
    float *mask_box;                               /* [mask_cap][4] */
    int32_t *mask_image, *mask_label, *mask_truth; /* [mask_cap] */
    int32_t *mask_offset;                          /* [n + 1] */
};

static inline struct roi_rows rcnn_rows(const struct rcnn_samples *s, int images)
{
    return (struct roi_rows){ s->box, s->image, s->offset + images, s->cap };
}

static inline struct roi_rows rcnn_mask_rows(const struct rcnn_samples *s, int images)
{
    return (struct roi_rows){ s->mask_box, s->mask_image, s->mask_offset + images, s->mask_cap };
}

static inline struct roi_rows rpn_rows(const struct rpn_proposals *p, int images)
{
    return (struct roi_rows){ p->box, p->image, p->offset + images, p->cap };
}

/* Outlines of one shard's truth as the task `instances` has them (device memory): truth t owns polygons polygon[t] ..
 * polygon[t + 1] - 1, polygon p points point[p] .. ; or, if it is a bitmap of its picture's size, runs run[t] .. :
 * zeros, ones, zeros ... down columns, left to right. NULL lists are empty; a truth without either has an empty
 * mask. */
struct rcnn_outlines {
    const int32_t *polygon; /* [truth rows + 1] */
    const int32_t *point;   /* [polygons + 1] */
    const double *xy;       /* [points][2] pixels of the canvas */
    const int32_t *run;     /* [truth rows + 1] */
    const int32_t *length;  /* [runs] */
};

enum rcnn_box_term { RCNN_CLS, RCNN_BOX, RCNN_ROWS, RCNN_FOREGROUND, RCNN_RIGHT /* rows whose class is right */, RCNN_BOX_TERMS };
enum rcnn_mask_term { RCNN_MASK, RCNN_MASK_ROWS, RCNN_MASK_TERMS };

/* clang-format off */
#define RCNN_OPS(X)                                                                                                                        \
    /* Matches proposals (and the truth) to the truth and draws head->batch of each image, at most max_foreground of                       \
     * them foreground. The candidates with the smallest random numbers are drawn: foreground[i] and background[i] by                      \
     * place among the image's proposals (host [images of all shards]). */                                                                 \
    X(rcnn, sample, (struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,   \
                     const struct rpn_proposals *proposals, const struct philox_key *foreground, const struct philox_key *background,      \
                     struct rcnn_samples *ret, int nshards, struct err *err),                                                              \
      (dev, head, images, truth, proposals, foreground, background, ret, nshards, err))                                                    \
    /* Losses of the box head over the rows drawn: logits [cap, 1, 1, classes + 1], deltas [cap, 1, 1,                                     \
     * rcnn_box_columns()]. Gradients (both NULL in validation) as in rpn's loss; every element is written, 0 beyond the                   \
     * count. terms: rows of [RCNN_BOX_TERMS], one a shard, or one an image. */                                                            \
    X(rcnn, box_loss, (struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth, \
                       struct tensor *dlogits, struct tensor *ddeltas, float grad_scale, double *const *terms, bool by_image,              \
                       const struct tensor *logits, const struct tensor *deltas, const struct rcnn_samples *samples, int nshards,          \
                       struct err *err),                                                                                                   \
      (dev, head, images, truth, dlogits, ddeltas, grad_scale, terms, by_image, logits, deltas, samples, nshards, err))                    \
    /* Targets of masks: target[v] [mask_cap][mask_side][mask_side] floats, written below the count only. */                               \
    X(rcnn, mask_targets, (struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images,                             \
                           const struct rcnn_outlines *outlines, float *const *target, const struct rcnn_samples *samples, int nshards,    \
                           struct err *err), (dev, head, images, outlines, target, samples, nshards, err))                                 \
    /* Loss of the mask head: logits [mask_cap, mask_side, mask_side, rcnn_mask_channels()]; a row uses the channel of                     \
     * its class. dlogits (NULL in validation) as above. terms: rows of [RCNN_MASK_TERMS], one a shard, or one an                          \
     * image. */                                                                                                                           \
    X(rcnn, mask_loss, (struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, struct tensor *dlogits,        \
                        float grad_scale, double *const *terms, bool by_image, const struct tensor *logits, const float *const *target,    \
                        const struct rcnn_samples *samples, int nshards, struct err *err),                                                 \
      (dev, head, images, dlogits, grad_scale, terms, by_image, logits, target, samples, nshards, err))                                    \
    /* Candidates of one image of a shard: each class of each proposal with score > `score`, decoded and cut to the                        \
     * picture. Boxes with a side below min_side are left out; a box that is not finite drops its whole row. In order of                   \
     * row, then class; slot = row * classes + class. Writes at most cap; *ret_count is the number found (may pass cap).                   \
     * logits, deltas: of the shard's proposals. Host memory; waits. */                                                                    \
    X(rcnn, decode, (struct device *dev, const struct rcnn_head *head, const struct rcnn_images *images, const struct tensor *logits,      \
                     const struct tensor *deltas, const struct rpn_proposals *proposals, int image, float score, float min_side,           \
                     struct candidate *ret, int cap, int *ret_count, struct err *err),                                                     \
      (dev, head, images, logits, deltas, proposals, image, score, min_side, ret, cap, ret_count, err))
/* clang-format on */

OPS_FAMILY(rcnn, RCNN_OPS)
