/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/arrays.h - the parameters of a detector with a feature
 * pyramid, from and to files in the names of several programs. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/models/rcnn/names.h"

struct arrays_file;
struct err;
struct jobspec;
struct model;
struct safetensors;
struct st_array;

enum { ARRAYS_NAME_BYTES = 160, ARRAYS_LEFT_OUT = 1 };

/* The arrays of a family: names, groups, and hooks for special ones. */
struct arrays_family {
    int spellings; /* its files have the first so many of enum rcnn_spelling */
    bool flavors;  /* it has the key model.flavor */
    /* The name of an array; see rcnn_spell(). */
    bool (*spell)(enum rcnn_spelling spelling, const struct rcnn_named *a, char *buf, size_t size);
    /* "the box head": the group that a file must have whole or not at all. */
    const char *(*group)(const struct rcnn_named *a);
    /* Checks the file before any array is taken. */
    int (*check)(struct arrays_file *f, struct err *err);
    /* Takes one array of the file. Returns 0, ARRAYS_LEFT_OUT or an error. */
    int (*put)(struct arrays_file *f, const struct rcnn_named *a, const struct st_array *in, struct err *err);
    /* Adds the family's own sentences to m->loaded. */
    void (*say)(const struct arrays_file *f);
};

/* A file that is being loaded. The caller fills the first group. */
struct arrays_file {
    const struct arrays_family *of;
    struct model *m;
    const struct rcnn_named *named; /* [n] */
    int n;
    const struct jobspec *spec;

    const struct safetensors *file;
    enum rcnn_spelling spelling;
    const char *note; /* behind the name of the spelling; "" at first */
    bool *used;       /* [arrays of the file] */
    int taken;
};

/* The array of the file for a parameter, in the file's spelling; NULL: not there. */
const struct st_array *arrays_find(const struct arrays_file *f, const struct rcnn_named *a);
/* Returns whether the file has any array of the group. */
bool arrays_has_group(const struct arrays_file *f, const char *group);
/* model.init, a .safetensors file in one of the family's spellings. The backbone must be whole; each other group must
 * be whole or missing. m->loaded tells missing and unused arrays. A file with another kind of backbone than the job's
 * is refused. Errors name file and array; a wrong file is ERR_DATA. */
int arrays_load(struct arrays_file *f, struct err *err);

/* model_family.export_as() in one spelling. stored: the numbers of an array, which the function frees, and their shape;
 * NULL: as they are stored here. */
struct arrays_export {
    const struct arrays_family *of;
    struct model *m;
    const struct rcnn_named *named; /* [n] */
    int n;
    enum rcnn_spelling spelling;
    float *(*stored)(const struct arrays_export *x, const struct rcnn_named *a, struct st_array *ret, struct err *err);
    const void *arg;
};
int arrays_export(const struct arrays_export *x, struct st_array **ret_arrays, size_t *ret_n, struct err *err);
