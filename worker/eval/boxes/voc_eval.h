/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/boxes/voc_eval.h - mean average precision of boxes at an
 * overlap of .5 by Pascal VOC's rules, with all points: voc_AP50. */
#pragma once
#include "worker/eval/evaluator.h"

extern const struct evaluator_ops voc_boxes;
