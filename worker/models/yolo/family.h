/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/family.h - the YOLOv3 family: presets and darknet
 * descriptions. */
#pragma once
#include "worker/models/registry.h"

extern const struct model_family yolo_models;
