#include "worker/comm/staged.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/comm/transport.h"
#include "worker/core/device.h"

enum { MAX_REGIONS = 64, STAGE_ALIGN = 256 };

struct region {
    char *mem, *twin; /* device memory; its copy in memory of the host comm */
    size_t bytes;
    bool shared;
};

struct channel {
    struct device *dev;
    char *stage; /* the peers' chunks in the last alltoall */
    size_t stage_bytes;
};

struct staged {
    struct comm comm; /* must stay first */
    struct comm *host;
    struct channel channel[COMM_CHANNELS];
    struct region region[MAX_REGIONS];
    int nregions;
};

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void staged_abort(struct comm *c)
{
    comm_abort(((struct staged *)c)->host);
}

static bool staged_aborted(const struct comm *c)
{
    return comm_aborted(((const struct staged *)c)->host);
}

static struct region *region_of(struct staged *s, const void *mem, bool shared)
{
    for (int i = 0; i < s->nregions; i++) {
        struct region *g = &s->region[i];

        if (g->shared == shared && (const char *)mem >= g->mem && (const char *)mem < g->mem + g->bytes)
            return g;
    }
    return NULL;
}

/* Aborts the comm if rc is an error, so that the others do not wait for this rank. */
static int give_up(struct staged *s, int rc)
{
    if (rc < 0)
        comm_abort(s->host);
    return rc;
}

static int to_twin(struct device *dev, char *twin, const char *mem, size_t lo, size_t hi, struct err *err)
{
    return lo == hi ? 0 : dev->ops->download(dev, twin + lo, mem + lo, hi - lo, err);
}

static int from_twin(struct device *dev, char *mem, const char *twin, size_t lo, size_t hi, struct err *err)
{
    return lo == hi ? 0 : dev->ops->upload(dev, mem + lo, twin + lo, hi - lo, err);
}

/* ---- alltoall ---- */

/* Copies to the twin the part of every plane that peers read: all but this rank's own chunk. */
static int put_planes(struct staged *s, struct device *dev, const struct comm_planes *x, char *twin, struct err *err)
{
    int me = s->comm.rank, rc = 0;

    for (int k = 0; rc == 0 && k < x->planes[me]; k++) {
        const char *mem = (const char *)x->mem + (size_t)k * x->plane_bytes;
        char *to = twin + (size_t)k * x->plane_bytes;

        rc = to_twin(dev, to, mem, x->cut[0], x->cut[me], err);
        if (rc == 0)
            rc = to_twin(dev, to, mem, x->cut[me + 1], x->cut[s->comm.nranks], err);
    }
    return rc;
}

/* Grows the stage. That happens in the first steps only, since sizes repeat. Queued work may still read the old stage,
 * so the device is synchronised first. */
static int want_stage(struct channel *ch, size_t bytes, struct err *err)
{
    int rc;

    if (bytes <= ch->stage_bytes)
        return 0;
    rc = ch->dev->ops->sync(ch->dev, err);
    if (rc < 0)
        return rc;
    if (ch->stage)
        ch->dev->ops->free(ch->dev, ch->stage);
    ch->stage_bytes = 0;
    ch->stage = ch->dev->ops->alloc(ch->dev, bytes);
    if (!ch->stage)
        return err_set(err, ERR_DEVICE, "alltoall: no device memory for %zu bytes of other ranks' chunks", bytes);
    ch->stage_bytes = bytes;
    return 0;
}

/* Turns views of the twins into views of device memory: own chunks stay in place, those of peers are copied to the
 * stage. */
static int take_chunks(struct staged *s, struct channel *ch, const struct comm_planes *x, const void **views, struct err *err)
{
    int me = s->comm.rank, nranks = s->comm.nranks, foreign = 0, rc;
    size_t bytes = x->cut[me + 1] - x->cut[me], place = align_up(bytes, STAGE_ALIGN);
    char *at;

    for (int r = 0; r < nranks; r++)
        foreign += r == me ? 0 : x->planes[r];
    rc = want_stage(ch, (size_t)foreign * place, err);
    at = ch->stage;
    for (int r = 0, v = 0; rc == 0 && r < nranks; r++)
        for (int k = 0; rc == 0 && k < x->planes[r]; k++, v++) {
            if (r == me) {
                views[v] = (const char *)x->mem + (size_t)k * x->plane_bytes + x->cut[me];
                continue;
            }
            if (bytes)
                rc = ch->dev->ops->upload(ch->dev, at, views[v], bytes, err);
            views[v] = at;
            at += place;
        }
    return rc;
}

static int staged_alltoall(struct comm *c, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err)
{
    struct staged *s = (struct staged *)c;
    struct channel *ch = &s->channel[op->channel];
    struct region *g = region_of(s, x->mem, false);
    struct comm_op on_host = comm_op_on(s->host, op);
    struct comm_planes twins = *x;
    int rc;

    if (c->nranks == 1) /* one rank: x may be in any memory */
        return s->host->ops->alltoall(s->host, &on_host, x, ret_views, err);
    if (!g)
        return give_up(s, err_set(err, ERR_INPUT, "alltoall from memory that peers cannot read"));
    twins.mem = g->twin + ((const char *)x->mem - g->mem);
    rc = put_planes(s, ch->dev, x, g->twin + ((const char *)x->mem - g->mem), err);
    if (rc == 0)
        rc = s->host->ops->alltoall(s->host, &on_host, &twins, ret_views, err);
    if (rc == 0)
        rc = take_chunks(s, ch, x, ret_views, err);
    return give_up(s, rc);
}

/* ---- allgather ---- */

static int staged_allgather(struct comm *c, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err)
{
    struct staged *s = (struct staged *)c;
    struct device *dev = s->channel[op->channel].dev;
    struct region *g = region_of(s, buffer, true);
    struct comm_op on_host = comm_op_on(s->host, op);
    char *mem = buffer, *twin;
    int me = c->rank, rc;

    if (!g)
        return give_up(s, err_set(err, ERR_INPUT, "allgather in memory that is not comm_alloc_shared()'s"));
    if (c->nranks == 1)
        return s->host->ops->allgather(s->host, &on_host, g->twin, cut, err);
    twin = g->twin + (mem - g->mem);
    rc = to_twin(dev, twin, mem, cut[me], cut[me + 1], err);
    if (rc == 0)
        rc = s->host->ops->allgather(s->host, &on_host, twin, cut, err);
    if (rc == 0)
        rc = from_twin(dev, mem, twin, cut[0], cut[me], err);
    if (rc == 0)
        rc = from_twin(dev, mem, twin, cut[me + 1], cut[c->nranks], err);
    return give_up(s, rc);
}

static int staged_exchange(struct comm *c, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                           size_t *ret_sizes, struct err *err)
{
    struct comm *host = ((struct staged *)c)->host;
    struct comm_op on_host = comm_op_on(host, op);

    return host->ops->exchange(host, &on_host, mine, bytes, reader, ret_views, ret_sizes, err);
}

/* ---- memory ---- */

static void *staged_alloc(struct comm *c, size_t bytes, bool shared, struct err *err)
{
    struct staged *s = (struct staged *)c;
    struct device *dev = s->channel[COMM_SYNC].dev;
    struct region g = { .bytes = bytes ? bytes : 1, .shared = shared };

    if (s->nregions == MAX_REGIONS) {
        err_set(err, ERR_STATE, "more than %d allocations of memory for collectives", MAX_REGIONS);
        return NULL;
    }
    g.twin = s->host->ops->alloc(s->host, g.bytes, shared, err);
    if (!g.twin) /* after a failure below the twin still belongs to the host comm */
        return NULL;
    g.mem = dev->ops->alloc(dev, g.bytes);
    if (!g.mem) {
        err_set(err, ERR_DEVICE, "no device memory for %zu bytes that ranks exchange", g.bytes);
        return NULL;
    }
    s->region[s->nregions++] = g;
    return g.mem;
}

static void staged_close(struct comm *c)
{
    struct staged *s = (struct staged *)c;
    struct device *dev = s->channel[COMM_SYNC].dev;

    for (int i = 0; i < COMM_CHANNELS; i++) {
        struct channel *ch = &s->channel[i];

        (void)ch->dev->ops->sync(ch->dev, NULL); /* queued work may still read this memory; a failure was already reported */
        if (ch->stage)
            ch->dev->ops->free(ch->dev, ch->stage);
    }
    for (int i = 0; i < s->nregions; i++)
        dev->ops->free(dev, s->region[i].mem);
    free(s);
}

static const struct comm_ops staged_ops = {
    .name = "shared memory, staged",
    .alloc = staged_alloc,
    .alltoall = staged_alltoall,
    .allgather = staged_allgather,
    .exchange = staged_exchange,
    .abort = staged_abort,
    .aborted = staged_aborted,
    .close = staged_close,
};

int comm_open_staged(struct comm *host, struct device *sync, struct device *grad, struct comm **ret_comm, struct err *err)
{
    struct staged *s = calloc(1, sizeof(*s));

    if (!s)
        return err_set(err, -ENOMEM, "staged transport: out of memory");
    s->comm = (struct comm){ .ops = &staged_ops, .rank = host->rank, .nranks = host->nranks, .hook = host->hook };
    s->host = host;
    s->channel[COMM_SYNC].dev = sync;
    s->channel[COMM_GRAD].dev = grad;
    *ret_comm = &s->comm;
    return 0;
}
