/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/transport.h - the interface that a transport implements. comm.c
 * numbers the operations, tells the progress page and cuts large private transfers into rounds; a transport moves the
 * bytes of one operation and checks it against the other ranks'. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/comm/comm.h"

#define COMM_KINDS(X)         \
    X(ALLTOALL, "alltoall")   \
    X(ALLGATHER, "allgather") \
    X(BROADCAST, "broadcast") \
    X(GATHER, "gather")       \
    X(BARRIER, "barrier")
#define X(ident, name) COMM_##ident,
enum comm_kind { COMM_KINDS(X) COMM_KIND_COUNT };
#undef X

/* Bytes that one rank sends in one round of a broadcast or gather. */
enum { COMM_STAGE_BYTES = 64 << 10 };

/* An operation as all ranks must see it. */
struct comm_op {
    uint32_t channel, number, kind;
    uint64_t bytes, fingerprint;
};

struct comm_ops {
    const char *name;
    void *(*alloc)(struct comm *c, size_t bytes, bool shared, struct err *err);
    int (*alltoall)(struct comm *c, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err);
    int (*allgather)(struct comm *c, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err);
    /* Every rank offers up to COMM_STAGE_BYTES (0 is legal); ret_views[r], ret_sizes[r] (both NULL: not wanted) hold
     * until the next operation. reader: the only rank that looks at bytes, or -1; sizes are known to all. */
    int (*exchange)(struct comm *c, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                    size_t *ret_sizes, struct err *err);
    /* NULL: operations return when they are done */
    int (*check)(struct comm *c, enum comm_channel ch, struct err *err);
    void (*abort)(struct comm *c);
    bool (*aborted)(const struct comm *c);
    void (*close)(struct comm *c);
};

/* Every transport's struct starts with this one. */
struct comm {
    const struct comm_ops *ops;
    int rank, nranks;
    struct comm_hook hook;
    uint32_t number[COMM_CHANNELS]; /* each used by its channel's thread alone */
    uint64_t allocated;             /* bytes of all comm_alloc*(), compared by comm_barrier() */
};

/* For a transport beside another one: op under the next number of `host`, to be passed to host->ops by the thread of
 * that channel. */
static inline struct comm_op comm_op_on(struct comm *host, const struct comm_op *op)
{
    struct comm_op renumbered = *op;

    renumbered.number = ++host->number[op->channel];
    return renumbered;
}

const char *comm_kind_name(uint32_t kind);
const char *comm_channel_name(uint32_t channel);
