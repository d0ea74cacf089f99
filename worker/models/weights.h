/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/weights.h - a model's parameters as named arrays (OIHW, as
 * the reference implementation stores them), and from files. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct model;
struct param;
struct safetensors;
struct st_array;

/* An array's name in other programs. Each '#' of `ours`, at most four, stands for a number; the '#' of `theirs` are the
 * same numbers, in order. A list ends with ours NULL; detd's own names need no row. */
struct rename {
    const char *ours, *theirs;
};

struct weights_wanted {
    const struct rename *renames;                    /* NULL: no renames */
    bool (*wants)(void *arg, const struct param *p); /* NULL: all */
    /* Does a wanted array have another shape in the file because of another count of classes? It is then left out.
     * NULL: no array does */
    bool (*of_other_classes)(void *arg, const struct param *p, const struct st_array *theirs);
    void *arg;
    /* detd's own checkpoint, with the numbers that training left; any other file must have numbers of a sound
     * network */
    bool own;
};

struct weights_taken {
    bool *loaded; /* [nparams], the caller's: set for each array that was in the file */
    int n;
    size_t homeless;         /* arrays of the file without a place in the model */
    const char *prefix;      /* prefix of all names in the file that was left out, or NULL */
    const struct param *bad; /* an array that is missing or has another shape, or NULL */
};

/* model.init, a .safetensors file: everything the model has, by name. Tells in m->loaded the parts that were taken.
 * Errors name file and array; a wrong file, or a number in it that is not finite or is a running variance below 0, is
 * ERR_DATA. */
int weights_load(struct model *m, const char *path, const struct rename *renames, struct err *err);
/* The same for the wanted arrays, for a family with further messages: errors name the array alone. */
int weights_take(struct model *m, const char *path, const struct weights_wanted *w, struct weights_taken *taken, struct err *err);
/* Sentences of m->loaded: a family's own, and those of weights_load(). */
void weights_say(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names to the rank's log, which lists them all, while sentences list only a few: each on a line, WEIGHTS_LISTED of one
 * kind at most. The names come from files. */
enum { WEIGHTS_LISTED = 200 };
struct weights_list {
    const char *path, *what; /* the file, and the property of the listed names */
    int n;                   /* so far */
};
void weights_list(struct weights_list *l, const char *name);
void weights_list_end(const struct weights_list *l);
void weights_say_taken(struct model *m, const char *path, int n);
void weights_say_homeless(struct model *m, size_t n);
void weights_say_prefix(struct model *m, const char *prefix); /* NULL: nothing */

/* Opens a file. Removes a wrapper's prefix of all names and returns it in *ret_prefix; NULL: there is no prefix. Errors
 * and ownership are those of safetensors_open(). */
int weights_open(const char *path, struct safetensors **ret_file, const char **ret_prefix, struct err *err);

/* Copies an array as the device has it (KRSC); the caller frees it. NULL: p is NULL, or memory is short (*err is filled
 * then). weights_put() copies it back. */
float *weights_get(struct model *m, const struct param *p, struct err *err);
int weights_put(struct model *m, struct param *p, const float *krsc, struct err *err);

/* The shape as stored, of param.layout; returns the number of dimensions. */
int weights_shape(const struct param *p, int64_t shape[4]);
/* Sets an array's numbers as they are stored. own: see weights_wanted; else a number that no sound network has is
 * ERR_DATA. */
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
/* The same for arrays with malloc'ed names: those of model_family.export_as(). */
void weights_named_free(struct st_array *arrays, size_t n);
