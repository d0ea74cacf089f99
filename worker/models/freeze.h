/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/freeze.h - train.freeze: what of a model does not train, by name or by the number of its layer. */
#pragma once
#include <jansson.h>

struct err;
struct model;

/* Of a model whose parameters are all there. `what`: texts, each a name as `detctl layers` has it, in which * and ? stand for others, a name up to one of its
 * dots ("backbone.body"), or layers "3" or "0-14". Those arrays keep their numbers; a normalisation of which scale and shift are frozen keeps its running
 * statistics too, and normalises with them. ERR_INPUT about train.freeze: one of them names nothing (close names are listed), or nothing is left. */
int model_freeze(struct model *m, const json_t *what, struct err *err);
