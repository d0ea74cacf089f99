/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/yolov3.h - networks of the YOLOv3 family, from darknet
 * descriptions. Source: specs yolov3. */
#pragma once
#include "worker/models/model.h"

struct darknet_block;
struct darknet_net;
struct jobspec;

/* Takes `net` over (also on failure). classes and sizes are already set in it. Weights are not initialised. */
int yolov3_new(struct darknet_net *net, const struct jobspec *spec, struct device *dev, struct model **ret_model, struct err *err);
const struct darknet_net *yolov3_net(const struct model *m);
/* The parameters of layer i's convolution; members that it does not have are NULL. */
struct yolov3_conv {
    struct param *weight, *bias;             /* without normalisation */
    struct param *gamma, *beta, *mean, *var; /* with */
};
const struct yolov3_conv *yolov3_conv(const struct model *m, int layer);
