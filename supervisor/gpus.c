#include "supervisor/gpus.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "proto/err.h"
#include "supervisor/job.h"

/* A lock that detd could not take is busy; detd gives the reason, unless this is a drain, which has a reason of its
 * own. */
static int take_given(const struct job_options *o, int i, struct err *err)
{
    if (i >= o->ngpu_lock_fds)
        return !o->drain && o->reason[0] ? err_set(err, -EWOULDBLOCK, "%s", o->reason)
                                         : err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of another daemon", o->gpus[i]);
    return gpulock_adopt(&o->gpu_locks, o->gpus[i], o->gpu_lock_fds[i], err);
}

static int take_one(struct gpus *g, const struct job_options *o, int i, struct err *err)
{
    int rc;

    if (o->gpu_lock_fds)
        return take_given(o, i, err);
    rc = gpulock_take(&o->gpu_locks, o->gpus[i], &g->fds[i], err);
    g->count += rc == 0;
    return rc;
}

int gpus_lock(struct gpus *g, const struct job_options *o, struct err *err)
{
    int n = 0, rc = 0;

    while (o->gpus && o->gpus[n])
        n++;
    g->fds = calloc((size_t)n + 1, sizeof *g->fds);
    if (!g->fds)
        return err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && i < n; i++)
        rc = take_one(g, o, i, err);
    if (rc < 0)
        gpus_unlock(g);
    return rc;
}

void gpus_unlock(struct gpus *g)
{
    for (int i = 0; i < g->count; i++)
        close(g->fds[i]);
    free(g->fds);
    *g = (struct gpus){ 0 };
}

/* "GPU-ab..." and "GPU-AB..." are one; a MIG instance may be told by the number of its GPU alone, since not every
 * driver tells more. */
static bool same_gpu(const char *granted, const char *seen)
{
    return strcasecmp(granted, seen) == 0 || (strncmp(granted, "MIG-", 4) == 0 && strncmp(seen, "MIG-", 4) != 0);
}

bool gpus_is_wrong(const char *granted, int rank, const json_t *hello, char *cause, size_t size)
{
    const char *seen = json_string_value(json_object_get(hello, "uuid"));
    const json_t *devices = json_object_get(hello, "devices");

    if (!granted)
        return false;
    if (json_is_integer(devices) && json_integer_value(devices) != 1)
        snprintf(cause, size, "rank %d sees %lld GPUs and was granted one, %s", rank, (long long)json_integer_value(devices), granted);
    else if (seen && !same_gpu(granted, seen))
        snprintf(cause, size, "rank %d is on GPU %.60s and was granted %s", rank, seen, granted);
    else
        return false;
    return true;
}
