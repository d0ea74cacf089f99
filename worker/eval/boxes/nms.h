/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/nms.h - per-class non-maximum suppression of one image's
 * candidates. Pure. Source: specs yolov3 section 7.1. */
#pragma once
#include <stddef.h>

#include "worker/ops/candidate.h"

/* Sorts cand by score, highest first (ties: lower slot, then lower class). Drops every box that has an IoU over
 * iou_thresh with a kept box of its class, and stops at max_det kept boxes over all classes. Boxes with a NaN score are
 * dropped. The kept boxes are cand[0] .. cand[return value - 1], in that order; the rest is undefined. */
size_t nms(struct candidate *cand, size_t count, float iou_thresh, int max_det);
