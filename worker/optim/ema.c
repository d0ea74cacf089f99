#include "worker/optim/ema.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/core/param.h"

struct ema {
    struct device *dev;
    struct param *const *params;
    int nparams;
    float **other; /* [nparams] */
};

float ema_decay(double decay, int64_t t)
{
    double early = (1 + (double)t) / (10 + (double)t);

    return (float)(early < decay ? early : decay);
}

/* Adds the average of one parameter. It starts at the weights. */
static int add(struct ema *e, int i, struct err *err)
{
    const struct param *p = e->params[i];
    size_t bytes = p->count * sizeof *p->data;

    e->other[i] = e->dev->ops->alloc(e->dev, bytes);
    if (!e->other[i])
        return err_set(err, ERR_DEVICE, "out of memory: average of %s", p->name);
    return e->dev->ops->copy_async(e->dev, e->other[i], p->data, bytes, err);
}

int ema_open(struct device *dev, struct param *const *params, int nparams, struct ema **ret_ema, struct err *err)
{
    struct ema *e = calloc(1, sizeof *e);
    int rc = 0;

    if (e)
        *e = (struct ema){ dev, params, nparams, calloc((size_t)nparams, sizeof *e->other) };
    if (!e || !e->other) {
        free(e);
        return err_set(err, ERR_DEVICE, "out of memory: averages of the weights");
    }
    for (int i = 0; i < nparams && rc >= 0; i++)
        if (param_trainable(params[i]))
            rc = add(e, i, err);
    if (rc < 0) {
        ema_close(e);
        return rc;
    }
    *ret_ema = e;
    return 0;
}

void ema_close(struct ema *e)
{
    if (!e)
        return;
    for (int i = 0; i < e->nparams; i++)
        if (e->other[i])
            e->dev->ops->free(e->dev, e->other[i]);
    free(e->other);
    free(e);
}

float *ema_other(const struct ema *e, int i)
{
    return e ? e->other[i] : NULL;
}

void ema_swap(struct ema *e)
{
    for (int i = 0; e && i < e->nparams; i++) {
        struct param *p = e->params[i];
        float *data = p->data;

        if (!e->other[i])
            continue;
        p->data = e->other[i];
        e->other[i] = data;
        p->version++; /* forms derived from the old values are void */
    }
}
