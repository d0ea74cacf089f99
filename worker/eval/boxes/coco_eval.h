/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_eval.h - average precision of boxes and of masks by
 * COCO's rules: AP, AP50 ... ARl, and "AP50:<class>" of every class; of masks with "segm_" before each. */
#pragma once
#include "worker/eval/evaluator.h"

/* A class's name is cut to the store's limit; if two classes would share a name all carry their id. */
extern const struct evaluator_ops coco_boxes;
/* Takes boxes with masks. If the split has no masks it reports nothing, and takes boxes without masks. */
extern const struct evaluator_ops coco_segm;
