/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/rcnn.h - Faster and Mask R-CNN with a feature pyramid.
 * Source: specs rcnn. */
#pragma once
#include <stdbool.h>

#include "worker/models/model.h"

struct err;
struct jobspec;
struct rcnn_network;

/* Groups of parameters that the flavors decay differently. */
enum { RCNN_GROUP_WEIGHTS, RCNN_GROUP_BIASES, RCNN_GROUP_NORMS };

/* The network of spec->model_preset for `classes` classes. Weights are not initialised. Errors name the key. */
int rcnn_new(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
const struct rcnn_network *rcnn_network_of(const struct model *m);
/* Is column 0 of the arrays that depend on the class count the background's, as in torchvision? Else it is the last,
 * and boxes and masks have no background column. */
bool rcnn_background_first(const struct model *m);
int rcnn_classes(const struct model *m);
