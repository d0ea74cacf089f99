#include "worker/data/sample/task.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "proto/err.h"

int task_sampler(const struct task *t, int shard_images, struct sampler **ret_sampler, struct err *err)
{
    struct sampler *s;
    int rc = sampler_new(t->seed, t->samples, &s, err);

    if (rc < 0)
        return rc;
    if (t->group)
        rc = sampler_group(s, t->group, shard_images, err);
    if (rc < 0)
        sampler_free(s);
    else
        *ret_sampler = s;
    return rc;
}
