#include "worker/models/rcnn/family.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "proto/job/jobspec.h"
#include "worker/data/sample/instances.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/boxes/voc_eval.h"
#include "worker/models/rcnn/load.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/ops/families.h"

static bool learns_masks(const struct jobspec *spec)
{
    return job_preset_masks(spec->preset);
}

/* detectron2 turns pictures upright. torchvision's programs take pixels as stored. */
static bool turns_pictures(const struct jobspec *spec)
{
    return strcmp(spec->model_flavor, "d2") == 0;
}

/* The dialect of this job's flavor. */
static int usual_dialect(const struct jobspec *spec)
{
    return turns_pictures(spec) ? RCNN_DIALECT_D2 : RCNN_DIALECT_TV;
}

static const struct evaluator_ops *const evaluators[] = { &coco_boxes, &coco_segm, &voc_boxes, NULL };

const struct model_family rcnn_models = { .name = "rcnn",
                                          .task = &task_instances,
                                          .needs = NEEDS_conv | NEEDS_norm | NEEDS_map | NEEDS_pool | NEEDS_resample | NEEDS_reduce |
                                                   NEEDS_optim | NEEDS_view | NEEDS_roi | NEEDS_rpn | NEEDS_rcnn,
                                          .masks = learns_masks,
                                          .upright = turns_pictures,
                                          .evaluators = evaluators,
                                          .open = rcnn_new,
                                          .load = rcnn_load,
                                          .dialects = rcnn_dialects,
                                          .usual_dialect = usual_dialect,
                                          .export_as = rcnn_export_as,
                                          .export_told = rcnn_export_told };
