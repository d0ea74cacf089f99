/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/sparse/sparse_models.h - small networks of Sparse
 * R-CNN on the CPU. Include it after cmocka.h. */
#pragma once
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/builtin.h"
#include "worker/models/model.h"

const struct device_ops *cpu_backend_generic(void);

/* A network that opens at once: two stages of 6 proposals. */
#define SPARSE_SMALL                                                                                                        \
    "\"preset\": \"sparse_rcnn_r18_fpn\", \"width\": 0.0625, \"fpn_channels\": 16, \"heads\": 2, \"dynamic_channels\": 8, " \
    "\"ffn_channels\": 24, \"proposals\": 6, \"stages\": 2"

#define SPARSE_VAL "}, \"val\": {" /* keys of "val" follow those of "model" */

static struct device *dev;

static inline int open_device(void **state)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    struct err err;

    (void)state;
    return cpu_backend_generic()->open(0, &opt, &dev, &err);
}

static inline int close_device(void **state)
{
    (void)state;
    dev->ops->close(dev);
    return 0;
}

static int inner; /* model.dynamic_channels of jobs, may be below the limit of job files; 0: the value of the job file */

/* keys: of "model", as JSON; later ones count. init: model.init, or NULL. start: with initial weights. */
static inline int try_open(const char *keys, const char *init, int classes, bool start, struct model **ret, struct err *err)
{
    char text[1200];
    struct jobspec *spec = NULL;
    json_t *root;
    int rc;

    snprintf(text, sizeof text,
             "{\"model\": {%s%s%s%s}, \"data\": {\"train\": {\"annotations\": \"a\", \"images\": \"i\"}}, \"train\": {\"steps\": 1, "
             "\"batch\": 1%s}}",
             keys, init ? ", \"init\": \"" : "", init ? init : "", init ? "\"" : "",
             strstr(keys, "sparse") ? ", \"backbone_lr\": 0.1" : "");
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    if (jobspec_parse(root, &spec, err) < 0)
        fail_msg("%s", err->msg);
    json_decref(root);
    spec->model_dynamic_channels = inner ? inner : spec->model_dynamic_channels;
    rc = (start ? model_open : model_open_unstarted)(&models_builtin, spec, (struct model_classes){ classes, NULL, NULL }, dev, ret, err);
    jobspec_free(spec);
    return rc;
}

static inline struct model *opened(const char *keys, const char *init, int classes)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (try_open(keys, init, classes, true, &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

static inline struct param *param_named(const struct model *m, const char *name)
{
    for (int i = 0; i < m->nparams; i++)
        if (strcmp(m->params[i]->name, name) == 0)
            return m->params[i];
    return NULL;
}
