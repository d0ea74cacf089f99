/* SPDX-License-Identifier: Apache-2.0 */ /* The collectives of a link: groups of NCCL calls on the stream of the
 * channel's device. */
#include "cuda/nccl_impl.h"

enum { STAGE_ALIGN = 256, STAGE_MIN = 4 << 20 };

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static cudaStream_t stream_of(const struct link_channel *c)
{
    return cuda_device(c->dev)->stream;
}

/* ---- alltoall ---- */

static char *stage_of(const struct link_channel *c)
{
    return c->nstages > 0 ? c->stage[c->nstages - 1] : NULL;
}

/* Makes the stage larger; that happens in the first steps only, since sizes repeat. The smaller stage is kept until the
 * end: freeing device memory waits for all queues. These may hold later operations of the main thread that need other
 * ranks, and those ranks may wait for the operation to be queued here. */
static int want_stage(struct link *l, struct link_channel *c, size_t bytes, struct err *err)
{
    size_t want = c->stage_bytes + c->stage_bytes / 2;
    struct err why;
    char *mem;

    if (bytes <= c->stage_bytes)
        return 0;
    want = want < bytes ? bytes : want;
    want = want < STAGE_MIN ? STAGE_MIN : want;
    mem = c->nstages < STAGES ? c->dev->ops->alloc(c->dev, want) : NULL;
    if (!mem) {
        err_set(&why, ERR_DEVICE, "alltoall, rank %d: no device memory for %zu bytes of other ranks' chunks", l->comm.rank, want);
        return link_fail(l, &why, err);
    }
    c->stage[c->nstages++] = mem;
    c->stage_bytes = want;
    return 0;
}

/* Places the chunks: own ones stay where they are, those of peers go to the stage one after the other. Returns the size
 * of the stage in bytes. */
static size_t place_chunks(const struct comm *c, const struct comm_planes *x, char *stage, const void **views)
{
    size_t place = align_up(x->cut[c->rank + 1] - x->cut[c->rank], STAGE_ALIGN), at = 0;

    for (int r = 0, v = 0; r < c->nranks; r++)
        for (int k = 0; k < x->planes[r]; k++, v++) {
            if (r == c->rank) {
                views[v] = (const char *)x->mem + (size_t)k * x->plane_bytes + x->cut[r];
                continue;
            }
            views[v] = stage ? stage + at : NULL;
            at += place;
        }
    return at;
}

/* Inside a group, a call on a non-blocking communicator may return ncclInProgress. It still belongs to the group. */
static bool accepted(ncclResult_t r)
{
    return r == ncclSuccess || r == ncclInProgress;
}

/* Called inside a group. Between two ranks the planes go in order. Both sides leave out a rank without data to send or
 * receive. */
static ncclResult_t send_and_receive(struct link *l, struct link_channel *c, const struct comm_planes *x, const void *const *views)
{
    int me = l->comm.rank, v = 0;
    size_t mine = x->cut[me + 1] - x->cut[me];
    ncclResult_t r = ncclSuccess;

    for (int peer = 0; peer < l->comm.nranks; v += x->planes[peer++]) {
        size_t theirs = x->cut[peer + 1] - x->cut[peer];

        if (peer == me)
            continue;
        for (int k = 0; accepted(r) && theirs && k < x->planes[me]; k++)
            r = l->api->ncclSend((const char *)x->mem + (size_t)k * x->plane_bytes + x->cut[peer], theirs, ncclUint8, peer, c->nccl,
                                 stream_of(c));
        for (int k = 0; accepted(r) && mine && k < x->planes[peer]; k++)
            r = l->api->ncclRecv((void *)(uintptr_t)views[v + k], mine, ncclUint8, peer, c->nccl, stream_of(c));
    }
    return r;
}

/* ---- allgather ---- */

static bool equal_parts(const size_t *cut, int nranks)
{
    for (int r = 1; r < nranks; r++)
        if (cut[r + 1] - cut[r] != cut[1] - cut[0])
            return false;
    return true;
}

static ncclResult_t gather_parts(struct link *l, struct link_channel *c, char *buffer, const size_t *cut)
{
    int me = l->comm.rank, nranks = l->comm.nranks;
    ncclResult_t r = ncclSuccess;

    if (equal_parts(cut, nranks))
        return cut[1] == cut[0]
                   ? ncclSuccess
                   : l->api->ncclAllGather(buffer + cut[me], buffer + cut[0], cut[1] - cut[0], ncclUint8, c->nccl, stream_of(c));
    for (int root = 0; accepted(r) && root < nranks; root++)
        if (cut[root + 1] > cut[root])
            r = l->api->ncclBroadcast(buffer + cut[root], buffer + cut[root], cut[root + 1] - cut[root], ncclUint8, root, c->nccl,
                                      stream_of(c));
    return r;
}

/* ---- queueing ---- */

/* One operation, as a group: either planes or the gathered buffer. */
struct movement {
    const struct comm_planes *x;
    const void *const *views;
    char *buffer;
    const size_t *cut;
};

static ncclResult_t issue(struct link *l, struct link_channel *c, const struct movement *m)
{
    ncclResult_t r = l->api->ncclGroupStart(), end;

    if (r != ncclSuccess)
        return r;
    r = m->x ? send_and_receive(l, c, m->x, m->views) : gather_parts(l, c, m->buffer, m->cut);
    end = l->api->ncclGroupEnd(); /* always called: the group belongs to the thread */
    return accepted(r) ? end : r;
}

static int queue(struct link *l, const struct comm_op *op, const struct movement *m, struct err *err)
{
    struct link_channel *c = &l->channel[op->channel];
    ncclResult_t r = ncclSuccess;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    if (c->nccl)
        r = issue(l, c, m);
    else
        rc = link_state(l, err);
    pthread_mutex_unlock(&c->lock);
    if (rc == 0)
        rc = link_settle(l, (enum comm_channel)op->channel, r, comm_kind_name(op->kind), l->timeout_ms, err);
    return rc < 0 ? rc : link_queued(l, op, err);
}

int link_alltoall(struct comm *comm, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err)
{
    struct link *l = (struct link *)comm;
    struct link_channel *c = &l->channel[op->channel];
    struct movement m = { .x = x, .views = ret_views };
    int rc = link_enter(l, op, err);

    if (rc < 0)
        return rc;
    rc = want_stage(l, c, place_chunks(comm, x, NULL, ret_views), err);
    if (rc < 0)
        return rc;
    place_chunks(comm, x, stage_of(c), ret_views);
    return queue(l, op, &m, err);
}

int link_allgather(struct comm *comm, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err)
{
    struct link *l = (struct link *)comm;
    struct movement m = { .buffer = buffer, .cut = cut };
    int rc = link_enter(l, op, err);

    return rc < 0 ? rc : queue(l, op, &m, err);
}

/* Host bytes go through the host comm. */
int link_exchange(struct comm *comm, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                  size_t *ret_sizes, struct err *err)
{
    struct link *l = (struct link *)comm;
    struct comm_op on_host;
    struct err why;
    int rc = link_state(l, err);

    if (rc < 0)
        return rc;
    on_host = comm_op_on(l->host, op);
    rc = l->host->ops->exchange(l->host, &on_host, mine, bytes, reader, ret_views, ret_sizes, &why);
    return rc < 0 ? link_fail(l, &why, err) : 0;
}
