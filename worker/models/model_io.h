/* worker/models/model_io.h - a model's parameters as named arrays (OIHW, as the reference implementation stores them), and from files. */
#pragma once
#include <stddef.h>

struct err;
struct model;
struct safetensors;
struct st_array;

/* Loads model.init: .safetensors by name, .weights by order. Only layers before load_until when that is >= 0; else everything the model has must be
 * there (.weights may end at any layer). What depends on the class count is never taken from another one, see darknet_weights.h. Says in m->loaded
 * what was. Errors name file and array; a wrong file is ERR_DATA. */
int model_load(struct model *m, const char *path, int load_until, struct err *err);
/* All parameters from an opened file; missing or differently shaped ones are ERR_CORRUPT. */
int model_import(struct model *m, const struct safetensors *file, struct err *err);
/* Host copies of all parameters, [nparams] in *ret_arrays. Caller frees with model_export_free(). */
int model_export(struct model *m, struct st_array **ret_arrays, struct err *err);
void model_export_free(struct model *m, struct st_array *arrays);
