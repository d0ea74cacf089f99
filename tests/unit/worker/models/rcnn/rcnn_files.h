/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/rcnn/rcnn_files.h - for tests of the weights of
 * Faster and Mask R-CNN: small models, and files of their weights. */
#pragma once
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "tests/stand/harness.h"
#include "worker/core/safetensors.h"
#include "worker/models/builtin.h"
#include "worker/models/rcnn/load.h"
#include "worker/models/rcnn/names.h"
#include "worker/models/rcnn/network.h"
#include "worker/models/rcnn/rcnn.h"
#include "worker/models/weights.h"

const struct device_ops *cpu_backend_generic(void);

enum { CLASSES = 3, MORE = 256 /* arrays that a change may add */ };

static struct device *dev;
static char folder[TEMP_MAX];
static const char *backbone;     /* of jobs; NULL: as the flavor has it */
static const int64_t *class_ids; /* of jobs and of exports; NULL: unknown */
static int pool;                 /* model.mask_pool of jobs; 0: its default */
static bool silent;              /* files do not name their origin, like other programs' files */
static bool named_classes;       /* files name their classes, like checkpoints */

static inline struct jobspec *spec_of(const char *preset, const char *flavor, const char *init)
{
    json_t *root = json_pack("{s:{s:s,s:s,s:f,s:i,s:i},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "flavor", flavor, "width",
                             0.0625, "fpn_channels", 8, "head_channels", 16, "data", "train", "annotations", "a", "images", "i", "train",
                             "steps", 1, "batch", 1);
    struct jobspec *spec = NULL;
    struct err err;

    assert_non_null(root);
    if (preset[0] == 'm')
        json_object_set_new(json_object_get(root, "model"), "mask_channels", json_integer(8));
    if (pool)
        json_object_set_new(json_object_get(root, "model"), "mask_pool", json_integer(pool));
    if (backbone)
        json_object_set_new(json_object_get(root, "model"), "backbone", json_string(backbone));
    if (init)
        json_object_set_new(json_object_get(root, "model"), "init", json_string(init));
    if (jobspec_parse(root, &spec, &err) < 0)
        fail_msg("%s", err.msg);
    json_decref(root);
    return spec;
}

static inline int try_open(const char *preset, const char *flavor, const char *init, int classes, struct model **ret, struct err *err)
{
    struct jobspec *spec = spec_of(preset, flavor, init);
    int rc = model_open(&models_builtin, spec, (struct model_classes){ classes, class_ids, NULL }, dev, ret, err);

    jobspec_free(spec);
    return rc;
}

static inline struct model *opened(const char *preset, const char *flavor, const char *init, int classes)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (try_open(preset, flavor, init, classes, &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

/* The exported arrays of m, `change`d, as a file. */
typedef void change(struct st_array *a, size_t *n);

static inline const char *file_of(struct model *m, int dialect, change *how)
{
    static char path[TEMP_MAX + 32];
    struct st_meta meta[1 + MODEL_TRAITS] = { { "classes", "[]" } };
    struct st_array *a, *kept;
    struct err err;
    size_t n, all;

    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    assert_int_equal(rcnn_export_as(m, dialect, (struct model_classes){ rcnn_classes(m), class_ids, NULL }, &a, &n, &err), 0);
    all = n;
    kept = calloc(n + MORE, sizeof *kept);
    assert_non_null(kept);
    memcpy(kept, a, n * sizeof *kept);
    if (how)
        how(kept, &n);
    memcpy(&meta[1], m->traits, (size_t)m->ntraits * sizeof *meta);
    if (safetensors_write(path, kept, n, &meta[!named_classes], silent ? 0 : (size_t)(m->ntraits + named_classes), &err) < 0)
        fail_msg("%s", err.msg);
    free(kept);
    weights_named_free(a, all);
    return path;
}

/* Are the numbers of both models, of one flavor, the same, except for the places in `left`? */
static inline void same_weights(struct model *a, struct model *b, bool but_columns)
{
    const struct rcnn_network *n = rcnn_network_of(a);
    struct err err;

    assert_int_equal(a->nparams, b->nparams);
    for (int i = 0; i < a->nparams; i++) {
        enum rcnn_place place = n->front.named[i].part.place;
        float *x = weights_get(a, a->params[i], &err), *y = weights_get(b, b->params[i], &err);

        if (!but_columns || (place != RCNN_CLASSES && place != RCNN_BOXES && place != RCNN_PREDICTOR))
            if (memcmp(x, y, a->params[i]->count * sizeof *x) != 0)
                fail_msg("%s differs", a->params[i]->name);
        free(x);
        free(y);
    }
}

static inline int set_up(void **state)
{
    struct device_options opt = { .threads = 1 };
    struct err err;

    (void)state;
    return mkdtemp(temp_path(folder, sizeof folder, "test_rcnn_weights.XXXXXX")) ? cpu_backend_generic()->open(0, &opt, &dev, &err) : -1;
}

static inline int tear_down(void **state)
{
    char path[TEMP_MAX + 32];

    (void)state;
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    unlink(path);
    rmdir(folder);
    dev->ops->close(dev);
    return 0;
}
