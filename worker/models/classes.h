/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/classes.h - the classes of a checkpoint's network, in the
 * order of its columns: text in the metadata of model.safetensors. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct dataset;
struct err;
struct model;
struct model_classes;

struct class_list {
    int n;
    int64_t *id;       /* [n] of the training data set, ascending */
    const char **name; /* [n] */
    json_t *root;      /* owns the names */
};

#define CLASSES_META "classes"

/* [{"id": ..., "name": ...}, ...]; the caller frees. */
char *classes_text(const struct dataset *d);
/* none: a network that knows no classes has an empty list. ret must be zero before; free it with classes_free(), also
 * after ERR_CORRUPT. */
int classes_read(const char *text, bool none, struct class_list *ret, struct err *err);
void classes_free(struct class_list *c);
/* A sentence of m->loaded if the file of weights has as many classes as the job, and some have other names. Says
 * nothing if the file is not .safetensors, or has no classes as detd writes them. */
void classes_compare(struct model *m, const char *path, struct model_classes classes);
