/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/depth_view.h - what a target's pixels show of another picture, by depth and motion: how well both fit is seen at a glance. Pure.
 * Source: specs featdepth section 2.4. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/eval/result.h"

struct depth_lens {
    double fx, fy, cx, cy; /* pixels; whole numbers are the middles of pixels */
};

/* Where the point that the target shows at (x, y), so deep, falls in the source: [R | t] takes points of the target's camera to the source's. False: behind it. */
bool depth_view_place(const struct depth_lens *lens, const double pose[RESULT_POSE], double x, double y, double depth, double *ret_u,
                      double *ret_v);
/* The source [h][w][3] as the target's camera sees it: ret [h][w][3], of the depth map's size as the source is. Black where the source shows nothing. */
void depth_view(const struct result_map *depth, const struct depth_lens *lens, const double pose[RESULT_POSE], const uint8_t *source,
                uint8_t *ret);
