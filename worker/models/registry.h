/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/registry.h - families of models: how the networks that proto/job/presets.h names are built, and what they need. A program has one registry,
 * which its main() names; ours is builtin.h. */
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

/* Of a data set, in the order of a model's columns. */
struct model_classes {
    int n;                           /* MODEL_OWN_CLASSES: as many as model.cfg has; for such jobs alone */
    const int64_t *id;               /* [n] of their categories, ascending; NULL: nobody knows. Borrowed for a call */
    const struct dataset_class *all; /* [n] with their names, for who computes losses; NULL: nobody does. Likewise */
};

struct model_family {
    const char *name;                              /* as in proto/job/presets.h */
    const struct task_kind *task;                  /* what a sample is made of */
    unsigned needs;                                /* families of operations: NEEDS_conv | ... of ops/families.h */
    const struct evaluator_ops *const *evaluators; /* of its results in a validation; ends with NULL */
    /* Builds the network of spec->preset, or of model.cfg; `classes` is the data set's count. Weights are not initialised. Errors name the key or the
     * file. */
    int (*open)(const struct jobspec *spec, int classes, struct device *dev, struct model **ret_model, struct err *err);
    const struct rename *renames;        /* of weights.h: arrays of other programs; NULL: none */
    int (*layer)(const struct param *p); /* number of the layer that an array is of; NULL: arrays are counted instead */
    /* Takes weights from spec->model_init and the like (jobspec_inits()) and says in m->loaded what was taken. NULL: weights_load() with `renames`. Errors name file and
     * array; a wrong file is ERR_DATA. */
    int (*load)(struct model *m, const struct jobspec *spec, struct model_classes classes, struct err *err);
    /* Programs in whose names and shapes its arrays can be written too; ends with NULL. NULL: none. Caller frees with weights_named_free(). */
    const char *const *dialects;
    int (*usual_dialect)(const struct jobspec *spec); /* which of them a file of the job's weights has, where nobody asks for another */
    int (*export_as)(struct model *m, int dialect, struct model_classes classes, struct st_array **ret_arrays, size_t *ret_n,
                     struct err *err);
    /* What has to be told to that program of a file in its names, in a sentence: what it does otherwise by itself than the job did. NULL: nothing. */
    void (*export_told)(const struct model *m, int dialect, char *ret, size_t size);
    /* Writes the network and its weights as the program has them that it comes from, `path` and what belongs beside it. seen: images that were trained
     * on. NULL: there is no such form. */
    int (*write_files)(struct model *m, const char *path, int64_t seen, struct err *err);
    bool (*masks)(const struct jobspec *spec);   /* whether a job needs the segmentations of its data sets; NULL: none does */
    bool (*upright)(const struct jobspec *spec); /* whether its pictures are turned as their EXIF orientation says; NULL: none are */
};

struct model_registry {
    const struct job_presets *presets;
    const struct model_family *const *family;
    int nfamilies;
};

/* Whether a job of that model needs the segmentations of its data sets. */
bool model_masks(const struct model_registry *r, const struct jobspec *spec);
/* Whether its pictures are turned as their EXIF orientation says. */
bool model_upright(const struct model_registry *r, const struct jobspec *spec);
/* NULL: there is none of that name. */
const struct model_family *model_family_find(const struct model_registry *r, const char *name);
/* Builds the model a job file describes for those classes, with initial weights that depend on (seed, names) alone; loads model.init
 * where given. A device without a family of operations that it needs is ERR_UNSUPPORTED. Caller frees with model_free(). */
int model_open(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
               struct model **ret_model, struct err *err);
/* The same for a look at whether it can be built and loaded: weights that model.init does not give stay undefined, as drawing them takes seconds. */
int model_open_unstarted(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
                         struct model **ret_model, struct err *err);
