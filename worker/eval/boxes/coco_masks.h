/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/coco_masks.h - measures masks for the COCO evaluation:
 * area and overlap in pixels. Only the masks of one picture at a time are in memory. */
#pragma once
#include "worker/eval/boxes/coco_match.h"
#include "worker/eval/evaluator.h"

struct coco_masks;

/* split->masks must exist; both must outlive it. -ENOMEM. Caller closes. */
int coco_masks_open(const struct eval_split *split, struct coco_masks **ret, struct err *err);
void coco_masks_close(struct coco_masks *m);
/* Prepares the measures of a picture, result r; truths without a detection of their class are left out. truths: of the
 * picture, sorted by class. *ret is valid until the next call. -ENOMEM, or the error of reading a truth's mask. */
int coco_masks_begin(struct coco_masks *m, const struct result *r, const struct truth *const *truths, size_t ntruths,
                     struct coco_measure *ret, struct err *err);
