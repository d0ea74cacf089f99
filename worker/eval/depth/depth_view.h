/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/depth_view.h - another picture seen at a target's pixels,
 * by depth and motion: shows at a glance how well both fit. Pure. Source: specs featdepth section 2.4. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/eval/result.h"

struct depth_lens {
    double fx, fy, cx, cy; /* pixels; whole numbers are the middles of pixels */
};

/* The place in the source of the point that the target shows at (x, y) in this depth: [R | t] takes points of the
 * target's camera to the source's. False: behind it. */
bool depth_view_place(const struct depth_lens *lens, const double pose[RESULT_POSE], double x, double y, double depth, double *ret_u,
                      double *ret_v);
/* The source [h][w][3] as the target's camera sees it: ret [h][w][3]; depth map and source must have the same size.
 * Pixels that the source does not show are black. */
void depth_view(const struct result_map *depth, const struct depth_lens *lens, const double pose[RESULT_POSE], const uint8_t *source,
                uint8_t *ret);
