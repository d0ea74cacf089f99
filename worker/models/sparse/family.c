#include "worker/models/sparse/family.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/data/sample/instances.h"
#include "worker/eval/boxes/coco_eval.h"
#include "worker/eval/boxes/voc_eval.h"
#include "worker/models/sparse/load.h"
#include "worker/models/sparse/sparse.h"
#include "worker/ops/families.h"

/* detectron2 turns pictures upright. */
static bool turns_pictures(const struct jobspec *spec)
{
    (void)spec;
    return true;
}

static int usual_dialect(const struct jobspec *spec)
{
    (void)spec;
    return SPARSE_DIALECT_D2;
}

static const struct evaluator_ops *const evaluators[] = { &coco_boxes, &voc_boxes, NULL };

const struct model_family sparse_models = { .name = "sparse",
                                            .task = &task_instances,
                                            .needs = NEEDS_conv | NEEDS_norm | NEEDS_map | NEEDS_pool | NEEDS_resample | NEEDS_reduce |
                                                     NEEDS_optim | NEEDS_view | NEEDS_roi | NEEDS_mat | NEEDS_rows | NEEDS_attn | NEEDS_set,
                                            .upright = turns_pictures,
                                            .evaluators = evaluators,
                                            .open = sparse_new,
                                            .load = sparse_load,
                                            .dialects = sparse_dialects,
                                            .usual_dialect = usual_dialect,
                                            .export_as = sparse_export_as,
                                            .export_told = sparse_export_told };
