/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/comm/comm_script.h - operations of ranks on a comm over
 * device memory, for the tests of every transport: both channels at once, buckets as in a training step with chunks of
 * all sizes. Every byte that arrives is compared with the byte that its rank has sent. */
#pragma once
#include <pthread.h>

#include "tests/unit/worker/comm/ranks.h"
#include "worker/core/device.h"

enum { BUCKETS = 3, MAX_RANKS = 8, MAX_PLANES = 3, BUCKET_BYTES = 12288 };
static const size_t plane_bytes = BUCKETS * (size_t)BUCKET_BYTES;

/* The state of one thread of a rank. */
struct lane {
    struct comm *comm;
    struct device *dev;
    enum comm_channel ch;
    int steps;
    unsigned seed;
    char *planes, *gathered; /* BUCKETS ranges of both are used in turn */
    uint64_t hash;           /* of all bytes that arrived, in order */
};

static inline unsigned next(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* The byte that rank r writes at `at` of its memory before operation n. */
static inline unsigned char byte(int n, int r, size_t at)
{
    return (unsigned char)((unsigned)n * 89u + (unsigned)r * 31u + (unsigned)at * 7u + (unsigned)(at >> 8) * 13u);
}

static inline void write_device(struct lane *l, char *dst, int n, size_t bytes)
{
    unsigned char host[BUCKET_BYTES];
    struct err err;

    NEED(bytes <= sizeof(host));
    for (size_t i = 0; i < bytes; i++)
        host[i] = byte(n, comm_rank(l->comm), i);
    if (bytes)
        NEED_OK(l->dev->ops->upload(l->dev, dst, host, bytes, &err));
}

/* Reads device memory from offset `from` on, compares it with the bytes that rank r wrote before operation n, and adds
 * it to the hash. */
static inline void read_device(struct lane *l, const void *src, int n, int r, size_t from, size_t bytes)
{
    unsigned char host[BUCKET_BYTES];
    struct err err;

    NEED(bytes <= sizeof(host));
    if (bytes)
        NEED_OK(l->dev->ops->download(l->dev, host, src, bytes, &err));
    for (size_t i = 0; i < bytes; i++) {
        NEED(host[i] == byte(n, r, from + i));
        l->hash = (l->hash ^ host[i]) * 0x100000001B3u;
    }
}

/* Cuts of a bucket into chunks of different lengths, some empty; all ranks draw the same. */
static inline void draw_cuts(int nranks, unsigned draw, size_t lo, size_t *cut)
{
    cut[0] = lo;
    for (int r = 0; r < nranks; r++)
        cut[r + 1] = cut[r] + (size_t)(next(&draw) % 4) * 4 * (next(&draw) % 90);
}

static inline void exchange_bucket(struct lane *l, int step, int bucket)
{
    int nranks = comm_ranks(l->comm), me = comm_rank(l->comm), planes[MAX_RANKS], n = step * BUCKETS + bucket, v = 0;
    struct comm_planes x = { l->planes, plane_bytes, planes, NULL };
    const void *views[MAX_RANKS * MAX_PLANES];
    size_t cut[MAX_RANKS + 1], lo = (size_t)bucket * BUCKET_BYTES;
    struct err err;

    draw_cuts(nranks, (unsigned)n * 77u + (unsigned)l->ch, lo, cut);
    for (int r = 0; r < nranks; r++)
        planes[r] = 1 + (r + step) % MAX_PLANES;
    x.cut = cut;
    for (int k = 0; k < planes[me]; k++)
        write_device(l, l->planes + (size_t)k * plane_bytes + lo, n * 3 + k, cut[nranks] - lo);
    rank_delay(&l->seed, 200);
    NEED_OK(comm_alltoall(l->comm, l->ch, &x, views, &err));
    rank_delay(&l->seed, 200);
    for (int r = 0; r < nranks; r++)
        for (int k = 0; k < planes[r]; k++)
            read_device(l, views[v++], n * 3 + k, r, cut[me] - lo, cut[me + 1] - cut[me]);

    write_device(l, l->gathered + cut[me], n, cut[me + 1] - cut[me]);
    NEED_OK(comm_allgather(l->comm, l->ch, l->gathered, cut, &err));
    rank_delay(&l->seed, 200);
    for (int r = 0; r < nranks; r++)
        read_device(l, l->gathered + cut[r], n, r, 0, cut[r + 1] - cut[r]);
    NEED_OK(comm_check(l->comm, l->ch, &err));
}

static inline void *lane_run(void *arg)
{
    struct lane *l = arg;

    for (int step = 0; step < l->steps; step++)
        for (int b = 0; b < BUCKETS; b++)
            exchange_bucket(l, step, b);
    return NULL;
}

/* Host bytes, on the channel of the calling thread. */
static inline void private_bytes(struct lane *l)
{
    int nranks = comm_ranks(l->comm), me = comm_rank(l->comm);
    unsigned char data[1000];
    size_t cut[MAX_RANKS + 1];
    struct err err;
    void *all;

    memset(data, me, sizeof(data));
    NEED_OK(comm_barrier(l->comm, l->ch, &err));
    NEED_OK(comm_gather(l->comm, l->ch, data, (size_t)me * 100, &all, cut, &err));
    for (int r = 0; r < nranks; r++)
        for (size_t i = cut[r]; me == 0 && i < cut[r + 1]; i++)
            NEED(((unsigned char *)all)[i] == r);
    free(all);
    memset(data, me + 5, sizeof(data));
    NEED_OK(comm_broadcast(l->comm, l->ch, data, sizeof(data), &err));
    NEED(data[0] == 5 && data[999] == 5);
}

static inline void open_lane(struct lane *l, struct comm *c, struct device *dev, enum comm_channel ch, int steps)
{
    struct err err;

    *l = (struct lane){ .comm = c, .dev = dev, .ch = ch, .steps = steps, .seed = (unsigned)comm_rank(c) * 2 + (unsigned)ch + 1, .hash = 1 };
    l->planes = comm_alloc(c, MAX_PLANES * plane_bytes, &err);
    l->gathered = comm_alloc_shared(c, plane_bytes, &err);
    NEED(l->planes && l->gathered);
}

/* Both channels at once, as in a training step: COMM_GRAD by a thread of its own. */
/* Returns the hash. */
static inline uint64_t work(struct comm *c, struct device *sync, struct device *grad, int steps)
{
    struct lane main_lane, side_lane;
    pthread_t thread;

    open_lane(&main_lane, c, sync, COMM_SYNC, steps);
    open_lane(&side_lane, c, grad, COMM_GRAD, steps);
    private_bytes(&main_lane);
    NEED(pthread_create(&thread, NULL, lane_run, &side_lane) == 0);
    lane_run(&main_lane);
    NEED(pthread_join(thread, NULL) == 0);
    private_bytes(&main_lane);
    return main_lane.hash * 31 + side_lane.hash;
}
