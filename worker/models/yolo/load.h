/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/yolo/load.h - model.init of the YOLOv3 family: .safetensors
 * by name, darknet .weights by order. */
#pragma once
#include "worker/models/weights.h"

struct err;
struct jobspec;
struct model_classes;

/* Names of ultralytics/yolov3 (its archive branch). */
extern const struct rename yolo_renames[];

/* The number, as in the .cfg, of the layer with the array p. */
int yolo_layer(const struct param *p);
/* Loads only layers before model.load_until if that is given. Else every array of the model must be there (.weights may
 * end at any layer). Arrays that depend on the class count are never taken from another count, see darknet_weights.h.
 * Tells in m->loaded the parts that were taken. Errors name file and array; a wrong file is ERR_DATA. */
int yolo_load(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
