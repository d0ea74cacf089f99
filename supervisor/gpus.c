/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/gpus.c - the granted GPUs: locked while detd-job lives, so that no other daemon's job gets them, and each rank on its own one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "proto/host/gpulock.h"
#include "supervisor/job_impl.h"

/* What detd could not take is busy; its reason is the drain's where there is one. */
static int take_given(struct job *j, int i, struct err *err)
{
    const struct job_options *o = &j->options;

    if (i >= o->ngpu_lock_fds)
        return !o->drain && o->reason[0] ? err_set(err, -EWOULDBLOCK, "%s", o->reason)
                                         : err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of another daemon", o->gpus[i]);
    return gpulock_adopt(&o->gpu_locks, o->gpus[i], o->gpu_lock_fds[i], err);
}

static int take_one(struct job *j, int i, struct err *err)
{
    int rc;

    if (j->options.gpu_lock_fds)
        return take_given(j, i, err);
    rc = gpulock_take(&j->options.gpu_locks, j->options.gpus[i], &j->gpu_locks[i], err);
    j->ngpu_locks += rc == 0;
    return rc;
}

int job_lock_gpus(struct job *j, struct err *err)
{
    int n = 0, rc = 0;

    while (j->options.gpus && j->options.gpus[n])
        n++;
    j->gpu_locks = calloc((size_t)n + 1, sizeof *j->gpu_locks);
    if (!j->gpu_locks)
        return err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && i < n; i++)
        rc = take_one(j, i, err);
    if (rc < 0)
        job_unlock_gpus(j);
    return rc;
}

void job_unlock_gpus(struct job *j)
{
    for (int i = 0; i < j->ngpu_locks; i++)
        close(j->gpu_locks[i]);
    free(j->gpu_locks);
    j->gpu_locks = NULL;
    j->ngpu_locks = 0;
}

/* "GPU-ab..." and "GPU-AB..." are one; a MIG instance may be told by the number of its GPU alone, since not every driver tells more. */
static bool same_gpu(const char *granted, const char *seen)
{
    return strcasecmp(granted, seen) == 0 || (strncmp(granted, "MIG-", 4) == 0 && strncmp(seen, "MIG-", 4) != 0);
}

void job_check_gpu(struct job *j, int rank, const json_t *hello)
{
    const char *granted = ranks_gpu(j->ranks, rank), *seen = json_string_value(json_object_get(hello, "uuid"));
    const json_t *devices = json_object_get(hello, "devices");
    char cause[OUTCOME_TEXT];

    if (!granted)
        return;
    if (json_is_integer(devices) && json_integer_value(devices) != 1)
        snprintf(cause, sizeof cause, "rank %d sees %lld GPUs and was granted one, %s", rank, (long long)json_integer_value(devices),
                 granted);
    else if (seen && !same_gpu(granted, seen))
        snprintf(cause, sizeof cause, "rank %d is on GPU %.60s and was granted %s", rank, seen, granted);
    else
        return;
    job_log("%s", cause);
    job_stop_ranks(j, 0, cause);
}
