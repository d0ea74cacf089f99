/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/export.c - weights for other programs. */
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/core/safetensors.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/predict/network.h"
#include "worker/predict/predict.h"

/* The number of the format. -1: unknown; err lists the known formats. */
static int dialect_of(const struct model_family *f, const char *name, struct err *err)
{
    char known[160];
    size_t used = (size_t)snprintf(known, sizeof known, "safetensors%s", f->write_files ? ", weights" : "");

    for (int i = 0; f->dialects && f->dialects[i]; i++) {
        if (strcmp(f->dialects[i], name) == 0)
            return i;
        used += (size_t)snprintf(known + used, sizeof known - used, ", %s", f->dialects[i]);
        used = used < sizeof known ? used : sizeof known - 1;
    }
    err_set(err, ERR_INPUT, "-f %.60s: models of the family %s cannot be written so; their formats are %s", name, f->name, known);
    return -1;
}

static void tell_export(const struct network *net, int dialect, const char *path, size_t n, FILE *out)
{
    char text[512];

    fprintf(out, "%zu arrays -> %s\n", n, path);
    if (!net->model->family->export_told)
        return;
    net->model->family->export_told(net->model, dialect, text, sizeof text);
    fprintf(out, "%s\n", text);
}

static int export_dialect(const struct network *net, int which, const char *path, FILE *out, struct err *err)
{
    const struct model *m = net->model;
    struct st_array *arrays = NULL;
    size_t n = 0;
    int rc = m->family->export_as(net->model, which, (struct model_classes){ net->classes.n, net->classes.id, NULL }, &arrays, &n, err);

    if (rc >= 0)
        rc = safetensors_export(path, arrays, n, m->traits, (size_t)m->ntraits, err);
    if (rc >= 0)
        tell_export(net, which, path, n, out);
    weights_named_free(arrays, n);
    return rc;
}

/* Exports with our names. For a family without other names they are those of the reference implementation. */
static int export_ours(const struct network *net, const char *path, FILE *out, struct err *err)
{
    const struct model *m = net->model;
    struct st_array *arrays = NULL;
    int rc = weights_export(net->model, &arrays, err);

    if (rc >= 0)
        rc = safetensors_export(path, arrays, (size_t)m->nparams, m->traits, (size_t)m->ntraits, err);
    if (rc >= 0)
        fprintf(out, "%d arrays -> %s\n", m->nparams, path);
    if (arrays)
        weights_export_free(net->model, arrays);
    return rc;
}

static int export_files(const struct network *net, const char *path, FILE *out, struct err *err)
{
    int rc = net->model->family->write_files(net->model, path, net->step * net->spec->train_batch, err);

    if (rc >= 0)
        fprintf(out, "the network, and its weights -> %.*s.cfg, %s\n", (int)(strlen(path) - strlen(".weights")), path, path);
    return rc;
}

static int export_in(const struct network *net, const char *form, const char *path, FILE *out, struct err *err)
{
    const struct model_family *f = net->model->family;
    int which;

    if (strcmp(form, "weights") == 0 && f->write_files)
        return export_files(net, path, out, err);
    if (strcmp(form, "safetensors") == 0)
        return f->dialects ? export_dialect(net, f->usual_dialect(net->spec), path, out, err) : export_ours(net, path, out, err);
    which = dialect_of(f, form, err);
    return which < 0 ? err->code : export_dialect(net, which, path, out, err);
}

int predict_export(const struct predict_options *opt, const char *form, const char *path, FILE *out, struct err *err)
{
    struct network net = { 0 };
    int rc = network_open(&net, opt->models, opt->job_dir, opt->checkpoint, out, err);

    if (rc >= 0)
        rc = export_in(&net, form, path, out, err);
    network_close(&net);
    return rc;
}
