/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/view.h - numbers in another order or form: pictures as the
 * network reads them, channels that become pixels. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"

/* Bytes of a picture become numbers: (byte - mean) / std, per channel in the network's order. */
struct view_colours {
    float mean[3], std[3];
    bool swap; /* the network has blue first, pictures have red first */
};

/* clang-format off */
#define VIEW_OPS(X)                                                                                                                        \
    /* y[v] [n, h, w, 3], f32 or bf16, from pictures x[v] of bytes; 0 beyond the picture. size[v][image][2]: height and                    \
     * width of the picture; size NULL: pictures are as large as y. */                                                                     \
    X(view, normalise, (struct device *dev, struct tensor *y, const struct tensor *x, const int32_t *const *size,                          \
             const struct view_colours *colours, int nshards, struct err *err), (dev, y, x, size, colours, nshards, err))                  \
    /* y [n, 2h, 2w, c] from x [n, h, w, 4c]: channel (2u + v) * c + k of a pixel is channel k of pixel (u, v) of the                      \
     * four it becomes, plus bias[k] (NULL: no bias). Nothing is pending on x. f32 or bf16. */                                             \
    X(view, shuffle_fwd, (struct device *dev, struct tensor *y, const struct tensor *x, const float *bias, int nshards, struct err *err),  \
      (dev, y, x, bias, nshards, err))                                                                                                     \
    /* dx = beta * dx + dy, each number back in its place. */                                                                              \
    X(view, shuffle_bwd, (struct device *dev, struct tensor *dx, float beta, const struct tensor *dy, int nshards, struct err *err),       \
      (dev, dx, beta, dy, nshards, err))
/* clang-format on */

OPS_FAMILY(view, VIEW_OPS)
