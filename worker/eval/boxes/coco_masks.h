/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_masks.h - how masks are measured for the COCO evaluation: area and overlap in pixels. Those of one picture at a time are in memory. */
#pragma once
#include "worker/eval/boxes/coco_match.h"
#include "worker/eval/evaluator.h"

struct coco_masks;

/* split->masks must be there, and both stay. -ENOMEM. Caller closes. */
int coco_masks_open(const struct eval_split *split, struct coco_masks **ret, struct err *err);
void coco_masks_close(struct coco_masks *m);
/* Of a picture, result r: truths that nothing of their class was found for are left out. truths: of the picture, sorted by class. What *ret measures stays
 * until the next call. -ENOMEM, or what reading a truth's mask says. */
int coco_masks_begin(struct coco_masks *m, const struct result *r, const struct truth *const *truths, size_t ntruths,
                     struct coco_measure *ret, struct err *err);
