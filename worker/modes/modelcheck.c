#include "worker/modes/modelcheck.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "worker/backend/devices.h"
#include "worker/core/device.h"
#include "worker/data/set/dataset.h"
#include "worker/models/registry.h"

int modelcheck_run(const struct model_registry *models, const struct jobspec *spec, const struct dataset *train, FILE *facts,
                   FILE *warnings, struct err *err)
{
    const struct device_options opt = { .isa = "auto" };
    const struct device_ops *ops = NULL;
    int64_t *id = malloc(((size_t)train->nclasses + 1) * sizeof *id);
    struct device *dev = NULL;
    struct model *m = NULL;
    int rc = id ? device_backend("cpu", "auto", &ops, err) : err_set(err, ERR_DEVICE, "out of memory");

    for (int i = 0; id && i < train->nclasses; i++)
        id[i] = train->classes[i].id;
    if (rc >= 0)
        rc = ops->open(0, &opt, &dev, err);
    if (rc >= 0)
        rc = model_open_unstarted(models, spec, (struct model_classes){ train->nclasses, id, train->classes }, dev, &m, err);
    if (rc >= 0 && m->notes)
        fputs(m->notes, warnings);
    if (rc >= 0 && m->loaded[0])
        fprintf(facts, "%s\n", m->loaded);
    model_free(m);
    if (dev)
        dev->ops->close(dev);
    free(id);
    return rc;
}
