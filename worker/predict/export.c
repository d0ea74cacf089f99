/* worker/predict/export.c - weights for other programs. */
#include <stdio.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/safetensors.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/predict/network.h"
#include "worker/predict/predict.h"

/* -1: the family knows none of that name; err lists those it knows. */
static int dialect_of(const struct model_family *f, const char *name, struct err *err)
{
    char known[160] = "";
    size_t used = 0;

    for (int i = 0; f->dialects && f->dialects[i]; i++) {
        if (strcmp(f->dialects[i], name) == 0)
            return i;
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", f->dialects[i]);
        used = used < sizeof known ? used : sizeof known - 1;
    }
    err_set(err, ERR_INPUT, "models of the family %s cannot be written in the names of '%.60s'; known: %s", f->name, name,
            *known ? known : "none");
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

int predict_export(const struct predict_options *opt, const char *dialect, const char *path, FILE *out, struct err *err)
{
    struct network net = { 0 };
    struct st_array *arrays = NULL;
    size_t n = 0;
    int which = 0, rc = network_open(&net, opt->models, opt->job_dir, opt->checkpoint, out, err);

    if (rc >= 0) {
        which = dialect_of(net.model->family, dialect, err);
        rc = which < 0 ? err->code
                       : net.model->family->export_as(net.model, which, (struct model_classes){ net.classes.n, net.classes.id }, &arrays,
                                                      &n, err);
    }
    if (rc >= 0)
        rc = safetensors_write(path, arrays, n, net.model->traits, (size_t)net.model->ntraits, err);
    if (rc >= 0)
        tell_export(&net, which, path, n, out);
    weights_named_free(arrays, n);
    network_close(&net);
    return rc;
}
