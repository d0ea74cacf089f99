/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/depth_eval.h - depth against measured depth: the numbers
 * of depth_metrics.h, each the mean over the pictures with a truth, and "scale_median" and "scale_std": the median over
 * pictures of the ratio of medians, and the deviation of the ratios over that median from their mean. Both show if the
 * network's unit is the same in all pictures. "depth_images": number of compared pictures. */
#pragma once
#include "worker/eval/evaluator.h"

/* Takes depth. If the split has no depth it reports nothing. A truth of another size than the prediction is
 * ERR_DATA. */
extern const struct evaluator_ops depth_maps;
