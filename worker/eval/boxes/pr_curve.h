/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/pr_curve.h - average precision of a ranked list of hits
 * and misses. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum pr_flag { PR_FP, PR_TP, PR_IGNORED }; /* ignored: neither hit nor miss */
enum pr_points { PR_ALL_POINTS, PR_11_POINTS, PR_101_POINTS };

/* flags[n] by falling score, npos objects to be found. Precision is made non-increasing, then integrated over recall
 * (all points) or averaged over 11 or 101 recall values. 0 for npos = 0. */
double pr_average_precision(const uint8_t *flags, size_t n, size_t npos, enum pr_points points);
