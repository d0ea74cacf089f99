/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/weights.h - a model's parameters as named arrays (OIHW, as the reference implementation stores them), and from files. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct model;
struct param;
struct safetensors;
struct st_array;

/* How other programs call an array. Each '#' of `ours`, four at most, stands for a number; those of `theirs` are the same numbers, in order. A list of
 * them ends with ours NULL; our own names need no row. */
struct rename {
    const char *ours, *theirs;
};

struct weights_wanted {
    const struct rename *renames;                    /* NULL: none */
    bool (*wants)(void *arg, const struct param *p); /* NULL: all */
    /* Whether a wanted array that is of another shape in the file is so because of another count of classes, and left out. NULL: none is */
    bool (*of_other_classes)(void *arg, const struct param *p, const struct st_array *theirs);
    void *arg;
    bool own; /* a checkpoint of ours, whose numbers are what training left; any other file must have those of a sound network */
};

struct weights_taken {
    bool *loaded; /* [nparams], the caller's: set for what was in the file */
    int n;
    size_t homeless;         /* arrays of the file without a place in the model */
    const char *prefix;      /* what stood before all names of the file and was left out, or NULL */
    const struct param *bad; /* the array that is missing or of another shape, or NULL */
};

/* model.init, a .safetensors file: everything the model has, by name. Says in m->loaded what was taken. Errors name file and array; a wrong
 * file, or a number in it that is not finite or is a running variance below 0, is ERR_DATA. */
int weights_load(struct model *m, const char *path, const struct rename *renames, struct err *err);
/* The same of what is wanted, for a family that says more: errors name the array alone. */
int weights_take(struct model *m, const char *path, const struct weights_wanted *w, struct weights_taken *taken, struct err *err);
/* Sentences of m->loaded: a family's own, and those of weights_load(). */
void weights_say(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names to the rank's log, which has them all where sentences have but a few: each a line, WEIGHTS_LISTED of one kind at most. Names come from outside. */
enum { WEIGHTS_LISTED = 200 };
struct weights_list {
    const char *path, *what; /* the file, and what holds of those that are listed */
    int n;                   /* so far */
};
void weights_list(struct weights_list *l, const char *name);
void weights_list_end(const struct weights_list *l);
void weights_say_taken(struct model *m, const char *path, int n);
void weights_say_homeless(struct model *m, size_t n);
void weights_say_prefix(struct model *m, const char *prefix); /* NULL: nothing */

/* Opens a file. A wrapper's prefix of all names is taken off and returned in *ret_prefix; NULL: there is none. Errors
 * and ownership are those of safetensors_open(). */
int weights_open(const char *path, struct safetensors **ret_file, const char **ret_prefix, struct err *err);

/* One array, as the device has it (KRSC): a copy that the caller frees, NULL where p is NULL or memory is short (*err is filled then); and back. */
float *weights_get(struct model *m, const struct param *p, struct err *err);
int weights_put(struct model *m, struct param *p, const float *krsc, struct err *err);

/* The shape as stored, of param.layout: how many dimensions. */
int weights_shape(const struct param *p, int64_t shape[4]);
/* The numbers of one as they are stored. own: as in weights_wanted; else a number that no sound network has is ERR_DATA. */
int weights_put_stored(struct model *m, struct param *p, const float *stored, bool own, struct err *err);
/* The numbers as they are stored, a copy that the caller frees; NULL: memory is short. */
float *weights_get_stored(struct model *m, const struct param *p, struct err *err);
/* From an array of a file; another shape is ERR_CORRUPT. */
int weights_put_array(struct model *m, struct param *p, const struct st_array *a, bool own, struct err *err);

/* All parameters from an opened file; missing or differently shaped ones are ERR_CORRUPT. */
int weights_import(struct model *m, const struct safetensors *file, struct err *err);
/* Host copies of all parameters, [nparams] in *ret_arrays. Caller frees with weights_export_free(). */
int weights_export(struct model *m, struct st_array **ret_arrays, struct err *err);
void weights_export_free(struct model *m, struct st_array *arrays);
/* The same of arrays whose names were malloc'ed too: those of model_family.export_as(). */
void weights_named_free(struct st_array *arrays, size_t n);
