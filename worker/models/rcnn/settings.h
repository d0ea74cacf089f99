/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/settings.h - settings around the network that differ
 * between detectron2 and torchvision, or that a job sets: anchors, draws, losses, pooling and detections. Source: specs
 * rcnn section 10. */
#pragma once
#include <stdbool.h>

#include "worker/layers/rcnn.h"

struct jobspec;

struct rcnn_settings {
    bool tv;
    struct rpn_head rpn;
    struct rpn_selection train, val;
    struct rcnn_head head;
    struct roi_align box_align, mask_align;
    struct rcnn_detection_options detection;
};

void rcnn_settings_of(const struct jobspec *spec, int classes, struct rcnn_settings *ret);
