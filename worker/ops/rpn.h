/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/rpn.h - region proposals of two-stage detectors: anchors are
 * labelled and drawn, have losses and gradients, and become proposals.
 *
 * Anchors are never stored: anchor (level, y, x, r) is cell[level][r] moved by (x, y) times the level's stride. Anchors
 * of an image are numbered level by level, in a level (y * w + x) * nratios + r. Logits are one tensor a level and
 * shard: objectness [n, h, w, nratios] and deltas [n, h, w, 4 * nratios], channel 4 * r + c, c = dx, dy, dw, dh, all
 * f32. Every selection (labels, samples, proposals' order) is a pure function of the numbers: ties go to the lower
 * number, so it is the same on every device. Source: specs rcnn section 3, determinism section 3.7. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/canvas.h"
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/ops/family.h"
#include "worker/ops/roi.h"

/* Largest numbers: anchors of an image, proposals of a level before suppression and of an image after it. */
enum { RPN_MAX_LEVELS = 8, RPN_MAX_RATIOS = 8, RPN_MAX_ANCHORS = 1 << 24, RPN_MAX_PRE = 8192, RPN_MAX_POST = 8192 };

/* Anchors and how they are labelled. Lengths are pixels of the canvas. */
struct rpn_head {
    int nlevels, nratios;
    /* x1 y1 x2 y2 about a grid point; rpn_set_anchors() of layers/rcnn.h */
    float cell[RPN_MAX_LEVELS][RPN_MAX_RATIOS][4];
    int stride[RPN_MAX_LEVELS];
    /* torchvision: a level's strides are the canvas's sides divided by the grid's, whole numbers, per axis */
    bool infer_stride;
    float pos_iou, neg_iou;
    /* the anchors that overlap a box most are positive, however little that is, unless it is 0 */
    bool low_quality;
    int batch, max_positive; /* anchors drawn per image, positive ones among them */
    float beta;              /* of smooth L1; 0: L1 */
    bool count_sampled;      /* losses are divided by the number of anchors drawn, not by batch * images */
};

/* How proposals are selected. */
struct rpn_selection {
    /* largest numbers kept: of each level before suppression; of an image after it. At most RPN_MAX_PRE,
     * RPN_MAX_POST */
    int pre, post;
    float nms;      /* IoU above which the lesser box is dropped, in one level */
    float min_side; /* sides must be strictly larger (0 drops empty boxes); with keep_min, at least so long */
    bool keep_min;
    /* order by the sigmoid of the logit once the best of a level are chosen (torchvision): large ones tie */
    bool sigmoid;
};

/* The images of one shard. */
struct rcnn_images {
    int n;
    struct canvas canvas;
    /* device [n][2]: height, width of the picture on the canvas; its upper left corner is the canvas's */
    const int32_t *size;
};

/* Their boxes: image i owns rows offset[i] .. offset[i + 1] - 1. Device memory. Images without boxes are legal, and so
 * is rows 0. */
struct rcnn_truth {
    const int32_t *offset; /* [n + 1] */
    const int32_t *cls;    /* [rows], 0 .. classes - 1 */
    const float *box;      /* [rows][4] x1 y1 x2 y2, pixels of the canvas */
    int rows;
};

/* The anchors drawn for the images of one shard: positive ones first, each kind by ascending number. Device memory;
 * rows [n][batch]. */
struct rpn_samples {
    int32_t *anchor;
    int32_t *truth; /* row of the shard's truth that is matched to it; -1: negative */
    int32_t *count; /* [n][2]: drawn, and positive ones among them */
};

/* Proposals of one shard, best first in each image, images without a gap. Device memory, written whole: rows beyond the
 * count are zeros. */
struct rpn_proposals {
    float *box;      /* [cap][4] */
    float *score;    /* [cap] the key of the order: logits, or their sigmoids */
    int32_t *image;  /* [cap] */
    int32_t *offset; /* [n + 1]: image i owns rows offset[i] .. offset[i + 1] - 1 */
    int32_t *broken; /* [1]: logits, and boxes among the best of each level, that are not finite */
    int cap;         /* n * post */
};

enum rpn_term { RPN_CLS, RPN_BOX, RPN_SAMPLED, RPN_POSITIVE, RPN_TERMS };

/* clang-format off */
#define RPN_OPS(X)                                                                                                                         \
    /* Labels all anchors against the truth and draws head->batch of each image. The candidates with the smallest random                   \
     * numbers are drawn: numbers of positive[i] and negative[i] by anchor (host [images of all shards], shard after                       \
     * shard). shape: [nlevels][nshards], the logits; only n, h, w are read. */                                                            \
    X(rpn, sample, (struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,     \
                    const struct tensor *const *shape, const struct philox_key *positive, const struct philox_key *negative,               \
                    struct rpn_samples *ret, int nshards, struct err *err),                                                                \
      (dev, head, images, truth, shape, positive, negative, ret, nshards, err))                                                            \
    /* Losses of the drawn anchors. dlogits and ddeltas (both NULL in validation): grad_scale * d (cls + box) / d, every                   \
     * element written. terms: rows of [RPN_TERMS] doubles, one a shard, or by_image one an image, shard after shard,                      \
     * divided by the image's own numbers. broken (may be NULL, so may its entries): if it counts any, the shard's                         \
     * RPN_BOX is NaN, as it would be a step later. */                                                                                     \
    X(rpn, loss, (struct device *dev, const struct rpn_head *head, const struct rcnn_images *images, const struct rcnn_truth *truth,       \
                  struct tensor *const *dlogits, struct tensor *const *ddeltas, float grad_scale, double *const *terms, bool by_image,     \
                  const struct tensor *const *logits, const struct tensor *const *deltas, const struct rpn_samples *samples,               \
                  const int32_t *const *broken, int nshards, struct err *err),                                                             \
      (dev, head, images, truth, dlogits, ddeltas, grad_scale, terms, by_image, logits, deltas, samples, broken, nshards, err))            \
    /* In each level: the best sel->pre, decoded, cut to the picture, without the small ones, suppressed. Then the best                    \
     * sel->post of each image. */                                                                                                         \
    X(rpn, propose, (struct device *dev, const struct rpn_head *head, const struct rpn_selection *sel, const struct rcnn_images *images,   \
                     const struct tensor *const *logits, const struct tensor *const *deltas, struct rpn_proposals *ret, int nshards,       \
                     struct err *err),                                                                                                     \
      (dev, head, sel, images, logits, deltas, ret, nshards, err))
/* clang-format on */

OPS_FAMILY(rpn, RPN_OPS)
