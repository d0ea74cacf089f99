/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/freeze.h - train.freeze: parts of a model that do not train,
 * by name or by the number of the layer. */
#pragma once
#include <jansson.h>

struct err;
struct model;

/* All parameters of the model must exist. `what`: texts. Each is a name from `detctl layers`, in which * and ? are
 * wildcards, the beginning of a name up to a dot ("backbone.body"), or layers "3" or "0-14". Those arrays keep their
 * numbers. A normalisation with frozen scale and shift also keeps its running statistics, and normalises with them.
 * ERR_INPUT about train.freeze: a text names nothing (similar names are listed), or nothing is left to train. */
int model_freeze(struct model *m, const json_t *what, struct err *err);
