/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/class_weights.h - train.class_weights: the factor of each
 * class's loss, by the names of a data set. */
#pragma once
#include <jansson.h>

#include "worker/models/registry.h"

struct err;

/* Puts m->class_weight on the device; does nothing if no class has a weight, or if there are no names. ERR_INPUT about
 * train.class_weights: the data set has no such category, or two; the text gives similar names. */
int class_weights_put(struct model *m, const json_t *weights, struct model_classes classes, struct err *err);
