/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/ate.h - distance of a camera's way from the true one: the
 * absolute trajectory error of short snippets. Pure. Source: specs featdepth section 7; Zhou et al. 2017,
 * arXiv:1704.07813, section 4.3 (snippets of five frames). */
#pragma once

#include "worker/eval/result.h"

enum { ATE_FRAMES = 5, ATE_MOTIONS = ATE_FRAMES - 1 };

/* A motion is 12 numbers, rows of [R | t], from the camera of a frame to the camera of the next one. Positions follow
 * from the products of motions, the first at the origin; the predicted positions are multiplied by the single number
 * that fits best. The error is the root of the sum of squared distances, over the number of frames. */
double ate_of(const double truth[ATE_MOTIONS][RESULT_POSE], const double predicted[ATE_MOTIONS][RESULT_POSE]);

/* ret = a b as 4 x 4 matrices with the last row 0 0 0 1; ret may be one of them. */
void pose_times(const double a[RESULT_POSE], const double b[RESULT_POSE], double ret[RESULT_POSE]);
/* [R^T | -R^T t], the inverse of a pose if R is a rotation. */
void pose_undone(const double a[RESULT_POSE], double ret[RESULT_POSE]);
