#include "worker/train/statistics.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/device.h"
#include "worker/models/model.h"
#include "worker/ops/families.h"
#include "worker/train/running.h"

struct statistics {
    struct statistics_options opt;
    struct running running;
    struct gather *all;  /* of all normalisations, gathered once a step */
    struct gather *sync; /* of one normalisation, gathered inside a step; empty if no normalisation is synchronised */
};

/* Records of `doubles` doubles, one a shard, in device memory. On a device they are gathered once here: the first
 * gather connects the ranks, and inside a step that could wait behind the gradients' connection. */
static int open_gather(const struct statistics *s, size_t doubles, struct gather **ret, struct err *err)
{
    const struct gather_options o = {
        .comm = s->opt.link, .nrecords = s->opt.shards, .buffers = 2, .record_bytes = doubles * sizeof(double)
    };
    int rc = gather_open(&o, ret, err);

    return rc < 0 || s->opt.dev->host_memory ? rc : gather_all(*ret, err);
}

int statistics_open(const struct statistics_options *opt, struct statistics **ret_statistics, struct err *err)
{
    struct statistics *s = calloc(1, sizeof *s);
    int rc;

    if (!s)
        return err_set(err, ERR_DEVICE, "out of memory: statistics");
    s->opt = *opt;
    rc = running_open(&s->running, opt->model->norms, opt->model->nnorms, err);
    if (rc >= 0 && s->running.widest > 0 && opt->waves > 1)
        rc = err_set(err, ERR_UNSUPPORTED, "train.waves: must be 1 where batch statistics are those of all shards, is %d", opt->waves);
    if (rc >= 0)
        rc = open_gather(s, s->running.doubles, &s->all, err);
    if (rc >= 0)
        rc = open_gather(s, s->running.widest, &s->sync, err);
    if (rc < 0) {
        statistics_close(s);
        return rc;
    }
    *ret_statistics = s;
    return 0;
}

void statistics_close(struct statistics *s)
{
    if (!s)
        return;
    gather_close(s->all);
    gather_close(s->sync);
    running_close(&s->running);
    free(s);
}

double *statistics_dest(struct statistics *s, int index, int use, int shard)
{
    return (double *)gather_record(s->all, shard) + running_at(&s->running, index, use);
}

int statistics_merge(struct statistics *s, enum merge_kind kind, struct span wave, const double *const *local, int n, double *ret,
                     struct err *err)
{
    struct device *dev = s->opt.dev;
    const double *all[JOB_MAX_SHARDS];
    int rc = 0;

    for (int v = wave.lo; v < wave.hi && rc >= 0; v++)
        rc = dev->ops->copy_async(dev, gather_record(s->sync, v), local[v - wave.lo], (size_t)n * sizeof(double), err);
    if (rc >= 0)
        rc = gather_all(s->sync, err);
    if (rc < 0)
        return rc;
    gather_rows(s->sync, 0, all);
    if (kind == MERGE_MOMENTS)
        return dev->on->reduce->tree_moments(dev, ret, all, s->opt.shards, (n - 1) / 2, err);
    return dev->on->reduce->tree_sums(dev, ret, all, s->opt.shards, (size_t)n, err);
}

int statistics_gather(struct statistics *s, struct err *err)
{
    return gather_all(s->all, err);
}

int statistics_update(struct statistics *s, float momentum, const int32_t *skip, struct err *err)
{
    struct device *dev = s->opt.dev;
    const double *records[JOB_MAX_SHARDS];

    if (s->running.nitems == 0)
        return 0;
    gather_rows(s->all, 0, records);
    return running_update(&s->running, dev, records, s->opt.shards, momentum, skip, err);
}
