/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/smooth.h - smoothness of a map where its picture is smooth: mean
 * absolute differences of first and second order, each weighted by the picture's own differences there. Specs featdepth
 * sections 3.5 and 3.6. Everything is f32; sums are double, over the channels of a pixel, the pixels of a row and the
 * rows of an image, in their order. */
#pragma once
#include <stdbool.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"

enum { SMOOTH_EDGES = 5 /* x, y, xx, xy, yy */, SMOOTH_SUMS = 2 /* of an image: of weighted differences; of its numbers */ };

struct smoothness {
    float edge;          /* k of exp(-k |picture's difference|) */
    float first, second; /* weights of the orders; the second has xx, xy, yx, yy */
    bool normalise;      /* differences are those of the map over its image's mean: for maps of one channel */
};

/* Operands of a loss, [nshards] each. */
struct smooth_in {
    const struct tensor *x;    /* [n, h, w, c] */
    const struct tensor *edge; /* [n, h, w, SMOOTH_EDGES], of edges() */
};

/* clang-format off */
#define SMOOTH_OPS(X)                                                                                                                      \
    /* Weight of a difference of x at each pixel in the loss: its order's weight times the picture's, over the number of                   \
     * such differences in `images` images of c channels; 0 if it would reach over the edge. picture: [n, H, W, 3] in 0                    \
     * .. 1, reduced by area; H >= h, W >= w. images: [nshards] host. */                                                                   \
    X(smooth, edges, (struct device *dev, const struct smoothness *s, struct tensor *edge, const struct tensor *picture, int c,            \
                const int *images, int nshards, struct err *err), (dev, s, edge, picture, c, images, nshards, err))                        \
    /* sums[v]: [n][SMOOTH_SUMS]; part[v]: [n][h][w][SMOOTH_SUMS], scratch. */                                                             \
    X(smooth, sums, (struct device *dev, double *const *sums, double *const *part, const struct smooth_in *in, int nshards,                \
               struct err *err), (dev, sums, part, in, nshards, err))                                                                      \
    /* ret[row] = the loss: of each shard, the sum over its images; apart: of each image, shard after shard. */                            \
    X(smooth, loss, (struct device *dev, const struct smoothness *s, double *const *ret, bool apart, double *const *sums,                  \
               const struct smooth_in *in, int nshards, struct err *err), (dev, s, ret, apart, sums, in, nshards, err))                    \
    /* dx = beta * dx + scale * the loss's gradient. */                                                                                    \
    X(smooth, bwd, (struct device *dev, const struct smoothness *s, struct tensor *dx, float beta, float scale, double *const *sums,       \
              const struct smooth_in *in, int nshards, struct err *err), (dev, s, dx, beta, scale, sums, in, nshards, err))
/* clang-format on */

OPS_FAMILY(smooth, SMOOTH_OPS)
