#include "worker/train/losses.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/comm/comm.h"
#include "worker/comm/gather.h"
#include "worker/core/device.h"
#include "worker/core/shards.h"
#include "worker/models/model.h"
#include "worker/report/window.h"

struct losses {
    struct losses_options opt;
    struct span mine;
    double *raw, *host;       /* [shards of this rank][model->raw_terms]: raw on the device, host its copy */
    struct device_mark *sent; /* the copy is made */
    struct gather *gather;    /* a record a shard: numerators and denominators */
    bool taken;               /* the gather's records hold this rank's; `host` may already be the next step's */
};

static size_t raw_bytes(const struct losses *l)
{
    return (size_t)(l->mine.hi - l->mine.lo) * l->opt.model->raw_terms * sizeof *l->raw;
}

int losses_open(const struct losses_options *opt, struct losses **ret_losses, struct err *err)
{
    const struct gather_options o = { .comm = opt->comm,
                                      .nrecords = opt->shards,
                                      .buffers = 2,
                                      .record_bytes = 2 * (size_t)opt->model->nterms * sizeof(double),
                                      .head_bytes = opt->head_bytes };
    struct device *dev = opt->dev;
    struct losses *l = calloc(1, sizeof *l);
    int rc;

    if (!l)
        return err_set(err, ERR_DEVICE, "out of memory: losses");
    l->opt = *opt;
    l->mine = rank_shards(comm_rank(opt->comm), comm_ranks(opt->comm), opt->shards);
    l->raw = dev->ops->alloc(dev, raw_bytes(l));
    l->host = dev->ops->host_alloc(dev, raw_bytes(l));
    l->sent = dev->ops->mark_new(dev);
    if (l->raw && l->host && l->sent)
        rc = gather_open(&o, &l->gather, err);
    else
        rc = err_set(err, ERR_DEVICE, "out of memory: losses");
    if (rc < 0) {
        losses_close(l);
        return rc;
    }
    *ret_losses = l;
    return 0;
}

void losses_close(struct losses *l)
{
    struct device *dev;

    if (!l)
        return;
    dev = l->opt.dev;
    if (l->raw)
        dev->ops->free(dev, l->raw);
    if (l->host)
        dev->ops->host_free(dev, l->host);
    if (l->sent)
        dev->ops->mark_free(dev, l->sent);
    gather_close(l->gather);
    free(l);
}

double *losses_raw(const struct losses *l, int shard)
{
    return l->raw + (size_t)(shard - l->mine.lo) * l->opt.model->raw_terms;
}

int losses_send(struct losses *l, struct err *err)
{
    struct device *dev = l->opt.dev;
    int rc = dev->ops->copy_async(dev, l->host, l->raw, raw_bytes(l), err);

    return rc < 0 ? rc : dev->ops->mark(dev, l->sent, err);
}

void *losses_head(struct losses *l)
{
    return gather_head(l->gather);
}

const void *losses_read_head(const struct losses *l, int rank)
{
    return gather_read_head(l->gather, rank);
}

int losses_take(struct losses *l, struct err *err)
{
    const struct model *m = l->opt.model;
    int rc = l->opt.dev->ops->reach(l->opt.dev, l->sent, err);

    if (rc >= 0)
        rc = comm_check(l->opt.link, COMM_SYNC, err);
    for (int v = l->mine.lo; v < l->mine.hi && rc >= 0; v++) {
        double *record = gather_record(l->gather, v);

        m->ops->sum_terms(m, l->host + (size_t)(v - l->mine.lo) * m->raw_terms, l->opt.images, record);
        window_record(m->terms, m->nterms, record);
    }
    l->taken = rc >= 0;
    return rc;
}

int losses_gather(struct losses *l, struct err *err)
{
    int rc = gather_all(l->gather, err);

    l->taken = l->taken && rc < 0;
    return rc;
}

int losses_own_nonfinite(struct losses *l, const double **ret_row)
{
    struct err ignored;

    if (!l->taken && losses_take(l, &ignored) < 0)
        return -1;
    for (int v = l->mine.lo; v < l->mine.hi; v++) {
        *ret_row = gather_record(l->gather, v);
        if (window_nonfinite(*ret_row, l->opt.model->nterms) >= 0)
            return v;
    }
    return -1;
}

int losses_nonfinite(const struct losses *l, const double **ret_row)
{
    for (int v = 0; v < l->opt.shards; v++) {
        *ret_row = gather_read(l->gather, v);
        if (window_nonfinite(*ret_row, l->opt.model->nterms) >= 0)
            return v;
    }
    return -1;
}

void losses_rows(const struct losses *l, const double **ret_rows)
{
    gather_rows(l->gather, 0, ret_rows);
}

void losses_sum(const struct losses *l, double *ret_sums)
{
    const double *rows[JOB_MAX_SHARDS];

    gather_rows(l->gather, 0, rows);
    window_sum(l->opt.model->nterms, rows, l->opt.shards, ret_sums);
}
