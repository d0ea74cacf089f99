/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/nccl_impl.h - what the files of the link share: nccl.c opens and closes it and holds its memory, nccl_move.c queues the
 * collectives, nccl_watch.c waits, watches and ends.
 *
 * A link is two communicators, one a channel, each on the stream of its device and with its own lock: NCCL wants one thread at a time
 * on a communicator. Communicators are non-blocking: a call may leave work to a thread of NCCL, and settle() waits for that, in steps,
 * so that an abort can come in between. NCCL only moves bytes. It never adds: the order of its sums depends on its topology.
 *
 * Two threads may have kernels of two communicators on one GPU as long as neither makes the other wait for what a peer has yet to
 * queue. So both fit beside each other (GRAD_CTAS, SYNC_CTAS) and have queues of their own (CUDA_DEVICE_MAX_CONNECTIONS, device.c), and
 * once a step of zeros has gone through (gradients_open()) the communication thread does nothing for which the driver stops the GPU: it
 * allocates nothing, gives nothing back and meets no kernel for the first time. The main thread may do so: what it then waits for was
 * queued before, in the same order on all ranks.
 *
 * One thread of the link, the watchdog, ends things: every WATCH_MS it looks for a failure of this rank, the abort flag of the host
 * comm, an asynchronous error of NCCL or of the stream, and an operation that has been on the stream for longer than the deadline. The
 * first of these is the link's failure, whose text all later calls return; it sets the host comm's abort flag, then ncclCommAbort()
 * makes the kernels on the stream leave, so that whoever waits in sync() comes back, and comm_check() has the failure by then. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "cuda/cuda.h"
#include "cuda/libs_nccl.h"
#include "worker/comm/transport.h"

enum {
    WATCH_MS = 20,     /* comm.h: an abort is seen within 50 ms */
    FLIGHTS = 64,      /* operations of a channel that are queued and not done; one more waits for the oldest */
    CHECKED_OPS = 256, /* first operations of a channel that ranks compare on the host before they queue them; sizes and order repeat */
    LINK_REGIONS = 64,
    STAGES = 40 /* sizes a stage may go through, each half as large again as the one before */
};

/* An operation on the stream. */
struct flight {
    cudaEvent_t done;
    struct comm_op op;
};

struct link_channel {
    struct device *dev;
    pthread_mutex_t lock; /* over every call on nccl, and over flight, first and next; never held while waiting */
    ncclComm_t nccl;      /* NULL before it is opened and after it was aborted */
    struct flight flight[FLIGHTS];
    unsigned first, next; /* the oldest that is not done; the one after the newest */
    int64_t since_ms;     /* when the oldest was queued or the one before it was done, the later of both */
    /* The last one holds peers' chunks of the newest alltoall, those before it were too small. One is enough: on one stream
     * receiving comes after whoever read what was there before. */
    char *stage[STAGES];
    int nstages;
    size_t stage_bytes;
};

struct link_region {
    void *mem;
    ncclWindow_t window[COMM_CHANNELS]; /* NULL: not registered */
};

struct link {
    struct comm comm; /* stays first */
    const struct nccl_api *api;
    struct comm *host; /* host bytes and the abort flag */
    int timeout_ms;
    struct link_channel channel[COMM_CHANNELS];
    struct link_region region[LINK_REGIONS];
    int nregions;

    pthread_t watchdog;
    bool watched; /* the thread was started */
    atomic_bool failed, quit;
    pthread_mutex_t lock; /* over failure */
    struct err failure;   /* code 0: none */
};

/* The first failure stays. Tells the other ranks and leaves the abort to the watchdog. Any thread. Returns the failure that holds now,
 * in *err too. */
int link_fail(struct link *l, const struct err *why, struct err *err);
/* 0, or the failure. */
int link_state(struct link *l, struct err *err);
/* Waits until a call on a channel's communicator that returned r is through. what: for the text, as "alltoall". */
int link_settle(struct link *l, enum comm_channel ch, ncclResult_t r, const char *what, int timeout_ms, struct err *err);

/* Before an operation: no failure, room for one more, and at first all ranks mean the same. */
int link_enter(struct link *l, const struct comm_op *op, struct err *err);
/* After it was queued: from now on it has a deadline. */
int link_queued(struct link *l, const struct comm_op *op, struct err *err);

/* comm_check(). */
int link_check(struct comm *c, enum comm_channel ch, struct err *err);

int link_watch(struct link *l, struct err *err);
/* Ends the watchdog; with a failure it has aborted the communicators by then. */
void link_unwatch(struct link *l);

/* nccl_move.c: rows of struct comm_ops. */
int link_alltoall(struct comm *c, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err);
int link_allgather(struct comm *c, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err);
int link_exchange(struct comm *c, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                  size_t *ret_sizes, struct err *err);
