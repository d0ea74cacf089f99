/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/roi.h - RoIAlign: boxes of any place and size become P x P
 * pixels of features, each from the level of a feature pyramid that fits it. Specs rcnn sections 4.3 and 4.4,
 * determinism section 5.2.
 *
 * A box sees its level as A X B^T, one thin matrix an axis (kernels/roi.h). Backward, every number of a level has one
 * owner. It adds the contributions of the rows below the count in ascending row, then bin: the order of work changes no
 * bit. Rows in another order give the same outputs in that order; their gradients are then added in that order. Boxes
 * get no gradient. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"

enum { ROI_MAX_LEVELS = 6, ROI_MAX_POOL = 32 };

/* Boxes of a shard: static capacity, count on the device. All is device memory except the struct itself. Rows at and
 * beyond the count are never read. Any box is legal. A box that is inside out, NaN, or reaches further than 2^20 cells
 * has samples only where its definition has any. A box with an image outside the shard has no samples at all. */
struct roi_rows {
    const float *box;     /* [cap][4]: x1, y1, x2, y2 in pixels of the canvas */
    const int32_t *image; /* [cap]: image of the shard; NULL: the images own equal shares, in order */
    const int32_t *count; /* [1]: rows in use, 0 .. cap; NULL: all are */
    int cap;
};

/* The level of a box of side s = sqrt(area): floor(canonical_level + log2(s / canonical_side)), limited to the existing
 * levels. The references differ in where they add a little, so that a side of exactly 224 does not fall below. */
enum roi_levels {
    ROI_LEVELS_D2, /* log2(s / side + 1e-8) */
    ROI_LEVELS_TV, /* log2(s / side) + 1e-6 */
};

struct roi_align {
    int nlevels;                 /* 1 .. ROI_MAX_LEVELS; one level takes every box */
    float scale[ROI_MAX_LEVELS]; /* cells of a level per pixel of the canvas: 1/4, 1/8 ... */
    enum roi_levels levels;
    int first_level;      /* number of the first level that is given: 2 if that is P2 */
    int canonical_level;  /* number of the level that a box of canonical_side takes: 4 */
    float canonical_side; /* pixels of the canvas; 224 */
    int pool;             /* P, 1 .. ROI_MAX_POOL */
    int sampling;         /* points a bin and axis; 0: as many as the bin has cells, rounded up */
    bool aligned;         /* subtracts half a cell, and boxes may be smaller than a cell */
};

/* clang-format off */
#define ROI_OPS(X)                                                                                                                         \
    /* y[v]: [cap, P, P, c] of rows[v]; rows at and beyond the count become 0. x[level][v]: [n, h, w, c], nothing                          \
     * pending. f32 or bf16, all of one dtype, and c. */                                                                                   \
    X(roi, align_fwd, (struct device *dev, const struct roi_align *roi, struct tensor *y, const struct tensor *const *x,                   \
             const struct roi_rows *rows, int nshards, struct err *err), (dev, roi, y, x, rows, nshards, err))                             \
    /* dx[level][v] = beta[level] * dx[level][v] + the gradient from dy's rows below the count: all of dx is written.                      \
     * dx[level] NULL: that level's is not wanted. beta: host, [nlevels]. */                                                               \
    X(roi, align_bwd, (struct device *dev, const struct roi_align *roi, struct tensor *const *dx, const float *beta,                       \
             const struct tensor *dy, const struct roi_rows *rows, int nshards, struct err *err),                                          \
      (dev, roi, dx, beta, dy, rows, nshards, err))
/* clang-format on */

OPS_FAMILY(roi, ROI_OPS)
