/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/pose_eval.h - the motion from frame to frame against the
 * true one: "ate" and "ate_std", mean and deviation of the error (ate.h) over all snippets of five frames in a row, in
 * the unit of the true poses. */
#pragma once
#include "worker/eval/evaluator.h"

/* Takes depth. If the split has no poses it reports nothing. */
extern const struct evaluator_ops depth_poses;
