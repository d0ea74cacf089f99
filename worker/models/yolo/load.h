/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/load.h - model.init of the YOLOv3 family: .safetensors by name, darknet .weights by order. */
#pragma once
#include "worker/models/weights.h"

struct err;
struct jobspec;
struct model_classes;

/* Names of ultralytics/yolov3 (its archive branch). */
extern const struct rename yolo_renames[];

/* Of the layer, as in the .cfg, whose array p is. */
int yolo_layer(const struct param *p);
/* Only layers before model.load_until where that is given; else everything the model has must be there (.weights may end at any layer). What depends
 * on the class count is never taken from another one, see darknet_weights.h. Says in m->loaded what was. Errors name file and array; a wrong file
 * is ERR_DATA. */
int yolo_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
