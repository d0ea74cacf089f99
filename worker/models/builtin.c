#include "worker/models/builtin.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "worker/models/depth/family.h"
#include "worker/models/rcnn/family.h"
#include "worker/models/sparse/family.h"
#include "worker/models/yolo/family.h"

static const struct model_family *const families[] = { &yolo_models, &rcnn_models, &depth_models, &sparse_models };

const struct model_registry models_builtin = { &job_presets, families, sizeof families / sizeof *families };
