/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/presets.h - networks by name: yolov3, yolov3_tiny,
 * yolov3_spp. Each is made as .cfg text and read by the same parser. */
#pragma once
#include "worker/models/yolo/darknet_net.h"

struct err;

/* The network with 80 classes at its published size (608, tiny 416). Caller frees with darknet_net_free(). */
int preset_net(const char *name, struct darknet_net **ret_net, struct err *err);
