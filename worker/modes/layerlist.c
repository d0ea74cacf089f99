#include "worker/modes/layerlist.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/backend/devices.h"
#include "worker/core/device.h"
#include "worker/core/param.h"
#include "worker/core/safetensors.h"
#include "worker/data/set/dataset.h"
#include "worker/modes/datacheck.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"

enum trains { TRAINS_YES, TRAINS_NO, TRAINS_NEVER }; /* never: running statistics, and arrays in a file */

static void shape_text(int ndims, const int64_t *shape, char *ret, size_t size)
{
    size_t at = (size_t)snprintf(ret, size, "[");

    for (int i = 0; i < ndims && at < size; i++)
        at += (size_t)snprintf(ret + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < size)
        snprintf(ret + at, size - at, "]");
}

/* json: the list that gets a row; NULL: prints it. Names in files are foreign input. */
static void add(json_t *json, FILE *out, int layer, const char *name, int ndims, const int64_t *shape, enum trains trains)
{
    static const char *const words[] = { [TRAINS_YES] = "yes", [TRAINS_NO] = "no", [TRAINS_NEVER] = "-" };
    char text[200], clean[160];
    size_t i = 0;
    json_t *row;

    if (!json) {
        for (; name[i] && i + 1 < sizeof clean; i++)
            clean[i] = (unsigned char)name[i] < ' ' || name[i] == 0x7f ? '?' : name[i];
        clean[i] = '\0';
        shape_text(ndims, shape, text, sizeof text);
        fprintf(out, "%5d  %-6s  %-18s  %s\n", layer, words[trains], text, clean);
        return;
    }
    row = json_pack("{s:i,s:s,s:[]}", "layer", layer, "name", name, "shape");
    for (int d = 0; row && d < ndims; d++)
        json_array_append_new(json_object_get(row, "shape"), json_integer(shape[d]));
    json_object_set_new(row, "trains", trains == TRAINS_NEVER ? json_null() : json_boolean(trains == TRAINS_YES));
    json_array_append_new(json, row);
}

static int end(json_t *json, FILE *out, struct err *err)
{
    int rc = json && json_dumpf(json, out, JSON_INDENT(2)) < 0 ? err_sys(err, "write the list") : 0;

    if (json)
        fputc('\n', out);
    json_decref(json);
    return rc;
}

static json_t *begin(const struct layerlist_options *o, FILE *out)
{
    if (!o->json)
        fprintf(out, "%5s  %-6s  %-18s  %s\n", "LAYER", "TRAINS", "SHAPE", "NAME");
    return o->json ? json_array() : NULL;
}

static bool learns(const struct model *m, const struct param *p)
{
    return param_trainable(p) && m->groups[p->group].lr > 0;
}

static int list_model(const struct layerlist_options *o, const struct model *m, FILE *out, struct err *err)
{
    json_t *json = begin(o, out);

    for (int i = 0; i < m->nparams; i++) {
        const struct param *p = m->params[i];
        int64_t shape[4];
        int ndims = weights_shape(p, shape);

        add(json, out, m->family->layer ? m->family->layer(p) : i, p->name, ndims, shape,
            !param_kind_trains(p->kind) ? TRAINS_NEVER
            : learns(m, p)              ? TRAINS_YES
                                        : TRAINS_NO);
    }
    return end(json, out, err);
}

static int list_built(const struct layerlist_options *o, const struct jobspec *spec, struct model_classes classes, FILE *out,
                      struct err *err)
{
    const struct device_options opt = { .isa = "auto" };
    const struct device_ops *ops = NULL;
    struct device *dev = NULL;
    struct model *m = NULL;
    int rc = device_backend("cpu", "auto", &ops, err);

    if (rc >= 0)
        rc = ops->open(0, &opt, &dev, err);
    if (rc >= 0)
        rc = model_open(o->models, spec, classes, dev, &m, err);
    if (rc >= 0 && m->notes)
        fputs(m->notes, stderr);
    if (rc >= 0)
        rc = list_model(o, m, out, err);
    model_free(m);
    if (dev)
        dev->ops->close(dev);
    return rc;
}

int layerlist_job(const struct layerlist_options *o, const struct jobspec *spec, int classes, FILE *out, struct err *err)
{
    struct dataset *d = NULL;
    int rc = classes != 0 ? 0 : datacheck_list(o->models, spec, &d, stderr, err);

    if (rc >= 0)
        rc = list_built(o, spec, (struct model_classes){ d ? d->nclasses : classes, NULL, NULL }, out, err);
    dataset_free(d);
    return rc;
}

int layerlist_file(const struct layerlist_options *o, const char *path, FILE *out, struct err *err)
{
    size_t len = strlen(path);
    struct safetensors *file;
    json_t *json;
    int rc;

    if (len >= 8 && strcmp(path + len - 8, ".weights") == 0)
        return err_set(err, ERR_INPUT,
                       "'%s': a darknet file holds numbers alone, without names and shapes: list the network that it is of, by its .cfg",
                       path);
    rc = safetensors_open(path, &file, err);
    if (rc < 0)
        return rc;
    json = begin(o, out);
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct st_array *a = safetensors_at(file, i);

        add(json, out, (int)i, a->name, a->ndims, a->shape, TRAINS_NEVER);
    }
    safetensors_close(file);
    return end(json, out, err);
}
