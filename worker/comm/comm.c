#include <stdlib.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proto/err.h"
#include "worker/comm/transport.h"

#define X(ident, name) name,
static const char *const kind_names[] = { COMM_KINDS(X) };
#undef X

const char *comm_kind_name(uint32_t kind)
{
    return kind < COMM_KIND_COUNT ? kind_names[kind] : "unknown operation";
}

const char *comm_channel_name(uint32_t channel)
{
    return channel == COMM_GRAD ? "grad" : "sync";
}

/* The finaliser of splitmix64 over a running sum. It only tells collectives apart and keeps no secrets. */
static uint64_t mix(uint64_t h, uint64_t word)
{
    h += word + 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
    h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
    return h ^ (h >> 31);
}

static uint64_t mix_cuts(uint64_t h, const struct comm *c, const size_t *cut)
{
    for (int r = 0; r <= c->nranks; r++)
        h = mix(h, cut[r]);
    return h;
}

/* Numbers the operation and shows it to the progress page before this rank waits. */
static struct comm_op begin(struct comm *c, enum comm_channel ch, enum comm_kind kind, uint64_t bytes, uint64_t detail)
{
    struct comm_op op = { .channel = ch, .number = ++c->number[ch], .kind = kind, .bytes = bytes };

    op.fingerprint = mix(mix(mix(ch, kind), bytes), detail);
    if (c->hook.enter)
        c->hook.enter(c->hook.arg, (int)ch, op.number, op.fingerprint);
    return op;
}

int comm_rank(const struct comm *c)
{
    return c->rank;
}

int comm_ranks(const struct comm *c)
{
    return c->nranks;
}

static void *take(struct comm *c, size_t bytes, bool shared, struct err *err)
{
    void *mem = c->ops->alloc(c, bytes, shared, err);

    if (mem)
        c->allocated += mix(shared, bytes);
    return mem;
}

void *comm_alloc(struct comm *c, size_t bytes, struct err *err)
{
    return take(c, bytes, false, err);
}

void *comm_alloc_shared(struct comm *c, size_t bytes, struct err *err)
{
    return take(c, bytes, true, err);
}

int comm_alltoall(struct comm *c, enum comm_channel ch, const struct comm_planes *x, const void **ret_views, struct err *err)
{
    uint64_t detail = mix_cuts(x->plane_bytes, c, x->cut);
    struct comm_op op;

    for (int r = 0; r < c->nranks; r++)
        detail = mix(detail, (uint64_t)x->planes[r]);
    op = begin(c, ch, COMM_ALLTOALL, x->cut[c->nranks] - x->cut[0], detail);
    return c->ops->alltoall(c, &op, x, ret_views, err);
}

int comm_allgather(struct comm *c, enum comm_channel ch, void *buffer, const size_t *cut, struct err *err)
{
    struct comm_op op = begin(c, ch, COMM_ALLGATHER, cut[c->nranks] - cut[0], mix_cuts(0, c, cut));

    return c->ops->allgather(c, &op, buffer, cut, err);
}

int comm_broadcast(struct comm *c, enum comm_channel ch, void *data, size_t bytes, struct err *err)
{
    const void *views[COMM_MAX_RANKS];
    size_t sizes[COMM_MAX_RANKS];

    for (size_t at = 0; at < bytes; at += COMM_STAGE_BYTES) {
        size_t part = bytes - at < COMM_STAGE_BYTES ? bytes - at : COMM_STAGE_BYTES;
        struct comm_op op = begin(c, ch, COMM_BROADCAST, bytes, at);
        int rc = c->ops->exchange(c, &op, (char *)data + at, c->rank == 0 ? part : 0, -1, views, sizes, err);

        if (rc < 0)
            return rc;
        if (c->rank != 0)
            memcpy((char *)data + at, views[0], part);
    }
    return 0;
}

/* Sends every rank the sizes of all ranks. */
static int gather_sizes(struct comm *c, enum comm_channel ch, size_t bytes, size_t *ret_cut, struct err *err)
{
    const void *views[COMM_MAX_RANKS];
    size_t sizes[COMM_MAX_RANKS];
    uint64_t mine = bytes;
    struct comm_op op = begin(c, ch, COMM_GATHER, sizeof(mine), 0);
    int rc = c->ops->exchange(c, &op, &mine, sizeof(mine), -1, views, sizes, err);

    if (rc < 0)
        return rc;
    ret_cut[0] = 0;
    for (int r = 0; r < c->nranks; r++) {
        uint64_t theirs;

        memcpy(&theirs, views[r], sizeof(theirs));
        ret_cut[r + 1] = ret_cut[r] + theirs;
    }
    return 0;
}

/* Bytes that rank r still sends in the round that starts at byte `at`. */
static size_t gather_part(const size_t *cut, int r, size_t at)
{
    size_t size = cut[r + 1] - cut[r], left = size > at ? size - at : 0;

    return left < COMM_STAGE_BYTES ? left : COMM_STAGE_BYTES;
}

static int gather_round(struct comm *c, enum comm_channel ch, const char *data, const size_t *cut, size_t at, char *all, struct err *err)
{
    const void *views[COMM_MAX_RANKS];
    size_t sizes[COMM_MAX_RANKS], part = gather_part(cut, c->rank, at);
    struct comm_op op = begin(c, ch, COMM_GATHER, cut[c->nranks], at + 1);
    int rc = c->ops->exchange(c, &op, part ? data + at : NULL, part, 0, views, sizes, err);

    for (int r = 0; rc == 0 && all && r < c->nranks; r++)
        if (sizes[r])
            memcpy(all + cut[r] + at, views[r], sizes[r]);
    return rc;
}

int comm_gather(struct comm *c, enum comm_channel ch, const void *data, size_t bytes, void **ret_data, size_t *ret_cut, struct err *err)
{
    size_t largest = 0;
    char *all = NULL;
    int rc = gather_sizes(c, ch, bytes, ret_cut, err);

    if (rc < 0)
        return rc;
    if (c->rank == 0 && !(all = malloc(ret_cut[c->nranks] + 1))) {
        comm_abort(c);
        return err_set(err, ERR_DEVICE, "gather of %zu bytes on rank 0: out of memory", ret_cut[c->nranks]);
    }
    for (int r = 0; r < c->nranks; r++)
        if (ret_cut[r + 1] - ret_cut[r] > largest)
            largest = ret_cut[r + 1] - ret_cut[r];
    for (size_t at = 0; at < largest; at += COMM_STAGE_BYTES) {
        rc = gather_round(c, ch, data, ret_cut, at, all, err);
        if (rc < 0) {
            free(all);
            return rc;
        }
    }
    *ret_data = all;
    return 0;
}

int comm_barrier(struct comm *c, enum comm_channel ch, struct err *err)
{
    struct comm_op op = begin(c, ch, COMM_BARRIER, 0, c->allocated);

    return c->ops->exchange(c, &op, NULL, 0, -1, NULL, NULL, err);
}

int comm_check(struct comm *c, enum comm_channel ch, struct err *err)
{
    return c->ops->check ? c->ops->check(c, ch, err) : 0;
}

bool comm_aborted(const struct comm *c)
{
    return c->ops->aborted(c);
}

void comm_abort(struct comm *c)
{
    c->ops->abort(c);
}

void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}
