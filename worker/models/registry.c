#include "worker/models/registry.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/models/class_weights.h"
#include "worker/models/classes.h"
#include "worker/models/freeze.h"
#include "worker/models/weights.h"
#include "worker/ops/families.h"

const struct model_family *model_family_find(const struct model_registry *r, const char *name)
{
    for (int i = 0; i < r->nfamilies; i++)
        if (strcmp(r->family[i]->name, name) == 0)
            return r->family[i];
    return NULL;
}

static int choose(const struct model_registry *r, const struct jobspec *spec, const struct device *dev, const struct model_family **ret,
                  struct err *err)
{
    const char *key = spec->preset ? "model.preset" : "model.cfg", *name = spec->preset ? spec->preset->name : spec->model_cfg, *lacking;

    *ret = model_family_find(r, spec->family->name);
    if (!*ret)
        return err_field(err, ERR_UNSUPPORTED, key, "%s: '%s' is of the family %s, which this worker does not have", key, name,
                         spec->family->name);
    lacking = families_lacking(dev->on, (*ret)->needs);
    if (lacking)
        return err_field(err, ERR_UNSUPPORTED, key, "%s: '%s' needs operations of the family %s, which the device does not have", key, name,
                         lacking);
    return 0;
}

bool model_masks(const struct model_registry *r, const struct jobspec *spec)
{
    const struct model_family *family = model_family_find(r, spec->family->name);

    return family && family->masks && family->masks(spec);
}

bool model_upright(const struct model_registry *r, const struct jobspec *spec)
{
    const struct model_family *family = model_family_find(r, spec->family->name);

    return family && family->upright && family->upright(spec);
}

/* True if the file of weights is missing or not readable for the job's user. A retry would not help. */
static bool is_users(int code)
{
    return code == -ENOENT || code == -EACCES || code == -EISDIR || code == -ENOTDIR || code == -ELOOP || code == -ENAMETOOLONG;
}

/* start: also makes initial weights. */
static int open_model(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
                      bool start, struct model **ret_model, struct err *err)
{
    struct jobspec_init inits[JOB_MAX_INITS];
    const struct model_family *f;
    struct model *m;
    int rc = choose(r, spec, dev, &f, err);

    if (rc >= 0)
        rc = jobspec_check_detections(spec, classes.n, err);
    if (rc >= 0)
        rc = f->open(spec, classes.n, dev, &m, err);
    if (rc < 0)
        return rc;
    m->family = f;
    rc = class_weights_put(m, spec->train_class_weights, classes, err);
    if (rc >= 0)
        rc = model_freeze(m, spec->train_freeze, err);
    if (rc < 0) {
        model_free(m);
        return rc;
    }
    rc = start ? model_init_weights(m, (uint64_t)spec->train_seed, err) : 0;
    if (rc >= 0 && jobspec_inits(spec, inits) > 0)
        rc = f->load ? f->load(m, spec, classes, err) : weights_load(m, spec->model_init, f->renames, err);
    if (rc >= 0 && spec->model_init)
        classes_compare(m, spec->model_init, classes);
    if (rc < 0 && is_users(rc))
        rc = err->code = ERR_DATA;
    if (rc < 0) {
        model_free(m);
        return rc;
    }
    *ret_model = m;
    return 0;
}

int model_open(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
               struct model **ret_model, struct err *err)
{
    return open_model(r, spec, classes, dev, true, ret_model, err);
}

int model_open_unstarted(const struct model_registry *r, const struct jobspec *spec, struct model_classes classes, struct device *dev,
                         struct model **ret_model, struct err *err)
{
    return open_model(r, spec, classes, dev, false, ret_model, err);
}
