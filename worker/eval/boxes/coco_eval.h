/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_eval.h - average precision of boxes and of masks as COCO has it: AP, AP50 ... ARl, and "AP50:<class>" of every class; of masks with
 * "segm_" before each. */
#pragma once
#include "worker/eval/evaluator.h"

/* A class's name is cut to what the store takes; where two classes would share one all carry their id. */
extern const struct evaluator_ops coco_boxes;
/* Takes boxes with masks. Where the split has no masks it says nothing, and takes boxes without. */
extern const struct evaluator_ops coco_segm;
