/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/nms.h - per-class non-maximum suppression of one image's candidates. Pure. Source: specs yolov3 section 7.1. */
#pragma once
#include <stddef.h>

#include "worker/ops/candidate.h"

/* Sorts cand by score, highest first (ties: lower slot, then lower class), drops every box whose IoU with a kept box of its class is
 * over iou_thresh, and stops at max_det kept boxes over all classes. Boxes with a score that is not a number are dropped.
 * The kept boxes are cand[0] .. cand[return value - 1], in that order; the rest is undefined. */
size_t nms(struct candidate *cand, size_t count, float iou_thresh, int max_det);
