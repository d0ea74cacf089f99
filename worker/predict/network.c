#include "worker/predict/network.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/backend/devices.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/core/device.h"
#include "worker/core/safetensors.h"
#include "worker/models/registry.h"
#include "worker/models/weights.h"
#include "worker/predict/choice.h"

enum { PATH_BYTES = 4096 + 64 };

static int read_spec(struct network *n, const struct model_registry *models, const char *job_dir, struct err *err)
{
    char path[PATH_BYTES];
    json_t *root;
    int rc;

    snprintf(path, sizeof path, "%s/spec.json", job_dir);
    rc = jobspec_read(path, &root, err);
    if (rc < 0)
        return rc;
    rc = jobspec_parse_for(models->presets, root, true, &n->spec, err);
    json_decref(root);
    if (rc >= 0) /* the checkpoint has the weights */
        jobspec_forget_inits(n->spec);
    return rc;
}

static int load_model(struct network *n, const struct model_registry *models, const char *dir, int64_t step, struct err *err)
{
    struct ckpt *c;
    int rc = ckpt_open(dir, step, NULL, &c, err);

    if (rc < 0)
        return rc;
    rc = classes_read(safetensors_meta(c->model, CLASSES_META), n->deep, &n->classes, err);
    if (rc >= 0)
        rc = model_open(models, n->spec, (struct model_classes){ n->classes.n, n->classes.id, NULL }, n->dev, &n->model, err);
    if (rc >= 0)
        rc = weights_import(n->model, c->model, err);
    ckpt_close(c);
    return rc;
}

int network_open(struct network *n, const struct model_registry *models, const char *job_dir, const char *checkpoint, FILE *out,
                 struct err *err)
{
    struct device_options dev = { .isa = "auto" };
    const struct device_ops *ops = NULL;
    struct choice choice = { 0 };
    char dir[PATH_BYTES];
    int rc;

    snprintf(dir, sizeof dir, "%s/checkpoints", job_dir);
    rc = choice_make(dir, checkpoint, &choice, err); /* before the job file: a job that never ran lacks both, and this error says so */
    if (rc >= 0)
        rc = read_spec(n, models, job_dir, err);
    if (rc >= 0) {
        /* like the job's validations; tf32 becomes fp32, the nearest that the CPU has */
        dev.precision = strcmp(n->spec->run_precision, "bf16") == 0 ? PRECISION_BF16 : PRECISION_FP32;
        n->masked = model_masks(models, n->spec);
        n->deep = strcmp(n->spec->family->name, "depth") == 0;
    }
    if (rc >= 0)
        rc = device_backend("cpu", "auto", &ops, err); /* GPUs are granted to jobs, and predict is not a job */
    if (rc >= 0)
        rc = ops->open(0, &dev, &n->dev, err);
    if (rc >= 0)
        rc = load_model(n, models, dir, choice.step, err);
    n->step = choice.step;
    if (rc >= 0)
        fprintf(out, "checkpoint of step %lld: %s\n", (long long)choice.step, choice.why);
    return rc;
}

void network_close(struct network *n)
{
    classes_free(&n->classes);
    model_free(n->model);
    if (n->dev)
        n->dev->ops->close(n->dev);
    jobspec_free(n->spec);
}
