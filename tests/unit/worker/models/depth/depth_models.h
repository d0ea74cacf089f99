/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/models/depth/depth_models.h - for tests of depth
 * networks: small models on the CPU, and files of their weights. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
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
#include "worker/models/weights.h"
#include "worker/ops/families.h"

const struct device_ops *cpu_backend_generic(void);

enum { WIDTH = 128, HEIGHT = 96, IMAGES = 2 };

static struct device *dev;
static char path[TEMP_MAX + 32]; /* where save() writes, and a model's key reads */

__attribute__((unused)) static int models_open(const char *test)
{
    struct device_options opt = { 1, "generic", PRECISION_FP32 };
    char base[TEMP_MAX];
    struct err err;

    snprintf(path, sizeof path, "%s.safetensors", temp_path(base, sizeof base, test));
    return cpu_backend_generic()->open(0, &opt, &dev, &err);
}

__attribute__((unused)) static void models_close(void)
{
    unlink(path);
    dev->ops->close(dev);
}

__attribute__((unused)) static int try_open(const char *preset, const char *key, struct model **ret, struct err *err)
{
    json_t *root =
        json_pack("{s:{s:s,s:[i,i],s:f,s:b},s:{s:{s:s,s:s}},s:{s:i,s:i}}", "model", "preset", preset, "size", WIDTH, HEIGHT, "width",
                  0.0625, "sync_bn", 0, "data", "train", "annotations", "a", "images", "i", "train", "steps", 1, "batch", IMAGES);
    struct jobspec *spec = NULL;
    int rc;

    assert_non_null(root);
    if (key)
        json_object_set_new(json_object_get(root, "model"), key, json_string(path));
    if (jobspec_parse(root, &spec, err) < 0)
        fail_msg("%s", err->msg);
    json_decref(root);
    rc = model_open(&models_builtin, spec, (struct model_classes){ 1, NULL, NULL }, dev, ret, err);
    jobspec_free(spec);
    return rc;
}

__attribute__((unused)) static struct model *opened(const char *preset, const char *key)
{
    struct model *m = NULL;
    struct err err = { 0 };

    if (try_open(preset, key, &m, &err) < 0)
        fail_msg("%s", err.msg);
    return m;
}

/* Saves all weights of m except those with `without` in their names. */
__attribute__((unused)) static void save(struct model *m, const char *without)
{
    struct st_array *a, *kept = calloc((size_t)m->nparams, sizeof *kept);
    struct err err;
    size_t n = 0;

    assert_non_null(kept);
    assert_int_equal(weights_export(m, &a, &err), 0);
    for (int i = 0; i < m->nparams; i++)
        if (!without || !strstr(a[i].name, without))
            kept[n++] = a[i];
    if (safetensors_write(path, kept, n, NULL, 0, &err) < 0)
        fail_msg("%s", err.msg);
    free(kept);
    weights_export_free(m, a);
}

__attribute__((unused)) static void save_autoencoder(void)
{
    struct model *m = opened("featdepth_autoencoder_r18", NULL);

    save(m, NULL);
    model_free(m);
}
