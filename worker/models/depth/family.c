#include "worker/models/depth/family.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/data/sample/frames.h"
#include "worker/eval/depth/depth_eval.h"
#include "worker/eval/depth/pose_eval.h"
#include "worker/models/depth/depth.h"
#include "worker/models/depth/load.h"
#include "worker/ops/families.h"

static const struct evaluator_ops *const evaluators[] = { &depth_maps, &depth_poses, NULL };

const struct model_family depth_models = { .name = "depth",
                                           .task = &task_frames,
                                           .needs = NEEDS_conv | NEEDS_norm | NEEDS_map | NEEDS_pool | NEEDS_resample | NEEDS_reduce |
                                                    NEEDS_optim | NEEDS_view | NEEDS_warp | NEEDS_photo | NEEDS_smooth,
                                           .evaluators = evaluators,
                                           .open = depth_new,
                                           .load = depth_load };
