#include "worker/train/nonfinite.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/core/param.h"
#include "worker/data/set/dataset.h"
#include "worker/data/sample/task.h"
#include "worker/gradients/gradients.h"
#include "worker/train/course.h"

enum { NAMED = 8 }; /* images at most */

int nonfinite_loss(const struct course *course, const struct task *task, const struct dataset *d, int64_t step, int shard, const char *term,
                   float lr, struct err *err)
{
    struct sampler *sampler;
    char text[256] = "";
    int rc = task_sampler(task, course->images, &sampler, err);

    if (rc < 0)
        return rc;
    for (int i = 0; i < course->images && i < NAMED; i++) {
        struct draw draw = sampler_at(sampler, stream_position(step, course->batch, course->shards, shard, i));
        size_t used = strlen(text);

        snprintf(text + used, sizeof text - used, "%s%s", i ? ", " : "", d->images[task_image(task, draw.sample)].file);
    }
    sampler_free(sampler);
    return err_set(err, ERR_NONFINITE, "step %lld: loss term '%s' of shard %d is not finite (learning rate %g; images %s)", (long long)step,
                   term, shard, (double)lr, text);
}

/* Returns 1 if a number is not finite. */
static int has_nonfinite(struct device *dev, const struct param *p, const float *grad, struct err *err)
{
    float *host = malloc(p->count * sizeof *host);
    int rc = host ? dev->ops->download(dev, host, grad, p->count * sizeof *host, err)
                  : err_set(err, ERR_DEVICE, "out of memory: gradient of %s", p->name);

    for (size_t i = 0; i < p->count && rc == 0; i++)
        rc = !isfinite(host[i]);
    free(host);
    return rc;
}

int nonfinite_gradient(struct device *dev, const struct gradients *g, struct param *const *params, int nparams, int64_t step, int times,
                       float lr, struct err *err)
{
    const char *first = "";
    int rc = 0;

    for (int i = 0; i < nparams && rc == 0; i++) {
        if (!param_trainable(params[i]))
            continue;
        rc = has_nonfinite(dev, params[i], gradients_sum(g, params[i]), err);
        first = params[i]->name;
    }
    if (rc < 0)
        return rc;
    return err_set(err, ERR_NONFINITE,
                   "step %lld: the gradient is not finite, %d steps in a row; the first such parameter is '%s' (learning rate %g)",
                   (long long)step, times, first, (double)lr);
}
