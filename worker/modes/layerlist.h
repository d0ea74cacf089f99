/* SPDX-License-Identifier: Apache-2.0 */ /* worker/modes/layerlist.h - prints for `detctl layers`: the arrays of a
 * network, or of a file of weights. */
#pragma once
#include <stdbool.h>
#include <stdio.h>

struct err;
struct jobspec;
struct model_registry;

struct layerlist_options {
    const struct model_registry *models;
    bool json; /* an array of objects instead of a table: layer, name, shape, trains (null for running statistics) */
};

/* For the job's network: number of the layer, name, shape as it is stored, and if it trains. For `classes` classes; 0:
 * as many as the annotations of the job's training data have; MODEL_OWN_CLASSES: as many as its .cfg has. */
int layerlist_job(const struct layerlist_options *o, const struct jobspec *spec, int classes, FILE *out, struct err *err);
/* For a .safetensors file: the arrays in the order of their names, and their shapes. Files without names are
 * ERR_INPUT. */
int layerlist_file(const struct layerlist_options *o, const char *path, FILE *out, struct err *err);
