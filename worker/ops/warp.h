/* SPDX-License-Identifier: Apache-2.0 */ /* worker/ops/warp.h - a picture as another camera sees it: poses as matrices,
 * and the source's values at the places of the target's pixels. Specs featdepth sections 1.7, 2.2 to 2.4, determinism
 * section 5.3.
 *
 * Everything is f32. Positions are computed anew on the way back. Each number of a source's gradient has one owner. It
 * adds the contributions of the target's pixels in their order: the order of work changes no bit. */
#pragma once
#include <stdbool.h>

#include "worker/core/device.h"
#include "worker/ops/family.h"

enum {
    POSE_IN = 6,        /* axis times angle, then translation */
    POSE_OUT = 12,      /* rows of the 3 x 4 matrix */
    CAMERA_NUMBERS = 4, /* fx, fy, cx, cy */
};

struct warp {
    float min_depth, max_depth;
    /* a projected position is a pixel's number; else positions are as in torch >= 1.3: u * w / (w - 1) - 1/2 */
    bool align_corners;
    /* factor of the camera's numbers: 1/2 for maps at half the sides for which the camera is given */
    float camera_scale;
};

/* Operands of a warp, [nshards] each. A pixel may fall anywhere, also behind the camera. Beyond the border the border's
 * pixel is taken; NaN counts as 0. Neither case has a gradient. */
struct warp_in {
    const struct tensor *source; /* [n, source's h, w, c] */
    const struct tensor *disp;   /* [n, h, w, 1]: 0 is max_depth, 1 is min_depth */
    const struct tensor *pose;   /* [n, 1, 1, POSE_OUT]: from the target's camera to the source's */
    const float *const *camera;  /* [n][CAMERA_NUMBERS] in pixels of both, over the scale */
};

/* clang-format off */
#define WARP_OPS(X)                                                                                                                        \
    /* y: [n, 1, 1, POSE_OUT] of x [n, 1, 1, POSE_IN]: [R | t], or, inverted, [R^T | -R^T t]. An angle of 0 gives no                       \
     * gradient of the axis. */                                                                                                            \
    X(warp, pose_fwd, (struct device *dev, bool invert, struct tensor *y, const struct tensor *x, int nshards, struct err *err),           \
      (dev, invert, y, x, nshards, err))                                                                                                   \
    X(warp, pose_bwd, (struct device *dev, bool invert, struct tensor *dx, float beta, const struct tensor *dy, const struct tensor *x,    \
                 int nshards, struct err *err), (dev, invert, dx, beta, dy, x, nshards, err))                                              \
    /* y: [n, h, w, c] */                                                                                                                  \
    X(warp, fwd, (struct device *dev, const struct warp *w, struct tensor *y, const struct warp_in *in, int nshards, struct err *err),     \
      (dev, w, y, in, nshards, err))                                                                                                       \
    /* ddisp and dpose; NULL: not wanted. */                                                                                               \
    X(warp, bwd, (struct device *dev, const struct warp *w, struct tensor *ddisp, float beta_disp, struct tensor *dpose, float beta_pose,  \
            const struct tensor *dy, const struct warp_in *in, int nshards, struct err *err),                                              \
      (dev, w, ddisp, beta_disp, dpose, beta_pose, dy, in, nshards, err))                                                                  \
    /* dsource; only the shape of in->source is read. */                                                                                   \
    X(warp, bwd_source, (struct device *dev, const struct warp *w, struct tensor *dsource, float beta, const struct tensor *dy,            \
                   const struct warp_in *in, int nshards, struct err *err), (dev, w, dsource, beta, dy, in, nshards, err))
/* clang-format on */

OPS_FAMILY(warp, WARP_OPS)
