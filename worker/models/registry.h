/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/registry.h - families of models: how the networks named in
 * proto/job/presets.h are built, and their needs. A program has one registry, named by its main(); this program's is
 * builtin.h. */
#pragma once
#include "proto/job/presets.h"
#include "worker/models/model.h"

struct dataset_class;
struct err;
struct evaluator_ops;
struct jobspec;
struct param;
struct rename;
struct st_array;
struct task_kind;

enum { MODEL_OWN_CLASSES = -1 };

/* Classes of a data set, in the order of a model's columns. */
struct model_classes {
    int n;             /* MODEL_OWN_CLASSES: as many as model.cfg has; only for such jobs */
    const int64_t *id; /* [n] of their categories, ascending; NULL: unknown. Borrowed for a call */
    /* [n] with their names, for computing losses; NULL: not needed. Borrowed for a call */
    const struct dataset_class *all;
};

struct model_family {
    const char *name;                              /* as in proto/job/presets.h */
    const struct task_kind *task;                  /* the parts of a sample */
    unsigned needs;                                /* families of operations: NEEDS_conv | ... of ops/families.h */
    const struct evaluator_ops *const *evaluators; /* for its results in a validation; ends with NULL */
    /* Builds the network of spec->preset, or of model.cfg; `classes` is the data set's count. Weights are not
     * initialised. Errors name the key or the file. */
    int (*open)(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
    const struct rename *renames;        /* of weights.h: arrays of other programs; NULL: no renames */
    int (*layer)(const struct param *p); /* number of the layer of an array; NULL: arrays are counted instead */
    /* Takes weights from spec->model_init and the like (jobspec_inits()) and tells in m->loaded the parts that were
     * taken. NULL: weights_load() with `renames`. Errors name file and array; a wrong file is ERR_DATA. */
    int (*load)(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
    /* Programs that the arrays can be written for, in their names and shapes; ends with NULL. NULL: no such programs.
     * Caller frees with weights_named_free(). */
    const char *const *dialects;
    /* the dialect of a file of the job's weights, unless another is asked for */
    int (*usual_dialect)(const struct jobspec *spec);
    int (*export_as)(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                     struct err *err);
    /* A sentence for the user of an exported file: settings that the other program must be given, because its defaults
     * differ from the job's. NULL: nothing. */
    void (*export_told)(const struct model *m, int dialect, char *ret, size_t size);
    /* Writes the network and its weights in the form of its original program: `path` and the files that belong beside
     * it. seen: number of images trained on. NULL: there is no such form. */
    int (*write_files)(struct model *m, const char *path, int64_t seen, struct err *err);
    /* does a job need the segmentations of its data sets? NULL: no job does */
    bool (*masks)(const struct jobspec *spec);
    bool (*upright)(const struct jobspec *spec); /* are its pictures turned by their EXIF orientation? NULL: never */
};

struct model_registry {
    const struct job_presets *presets;
    const struct model_family *const *family;
    int nfamilies;
};

/* Does a job of that model need the segmentations of its data sets? */
bool model_masks(const struct model_registry *r, const struct jobspec *spec);
/* Are its pictures turned by their EXIF orientation? */
bool model_upright(const struct model_registry *r, const struct jobspec *spec);
/* NULL: no family has that name. */
const struct model_family *model_family_find(const struct model_registry *r, const char *name);
/* Builds the model that a job file describes for those classes, with initial weights that depend on (seed, names)
 * alone; loads model.init if given. A device without a family of operations that it needs is ERR_UNSUPPORTED. Caller
 * frees with model_free(). */
int model_open(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
               struct model **ret_model, struct err *err);
/* The same, only to check that it can be built and loaded: weights that model.init does not give stay undefined, as
 * drawing them takes seconds. */
int model_open_unstarted(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
                         struct model **ret_model, struct err *err);
