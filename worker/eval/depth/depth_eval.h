/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/depth_eval.h - depth against measured depth: the numbers of depth_metrics.h, each the mean over the pictures that have a truth, and
 * "scale_median" and "scale_std": the median over pictures of the ratio of medians, and how far the ratios over that median deviate from their mean.
 * Both tell whether the network's unit is the same in all pictures. "depth_images": how many pictures were compared. */
#pragma once
#include "worker/eval/evaluator.h"

/* Takes depth. Where the split has none it says nothing. A truth of another size than the prediction is ERR_DATA. */
extern const struct evaluator_ops depth_maps;
