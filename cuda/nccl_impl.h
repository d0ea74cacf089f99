/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/nccl_impl.h - shared by the files of the link: nccl.c opens and closes
 * it and holds its memory, nccl_move.c queues the collectives, nccl_watch.c waits, watches and ends.
 *
 * A link is two communicators, one a channel, each on the stream of its device and with its own lock: NCCL wants one
 * thread at a time on a communicator. Communicators are non-blocking: a call may leave work to a thread of NCCL, and
 * settle() waits for that, in steps, so that an abort can come in between. NCCL only moves bytes. It never adds: the
 * order of its sums depends on its topology.
 *
 * Two threads may have kernels of two communicators on one GPU as long as neither makes the other wait for an operation
 * that a peer has not yet queued. Both therefore fit beside each other (GRAD_CTAS, SYNC_CTAS) and have their own queues
 * (CUDA_DEVICE_MAX_CONNECTIONS, device.c). After a step of zeros (gradients_open()) the communication thread does
 * nothing for which the driver stops the GPU: it allocates nothing, gives nothing back and uses no kernel for the first
 * time. The main thread may do so: the work for which it then waits was queued before, in the same order on all ranks.
 *
 * The watchdog, a thread of the link, ends a broken link. Every WATCH_MS it looks for a failure of this rank, the abort
 * flag of the host comm, an asynchronous error of NCCL or of the stream, and an operation that has been on the stream
 * for longer than the deadline. The first of these is the link's failure; all later calls return its text. The watchdog
 * sets the host comm's abort flag, then ncclCommAbort() makes the kernels on the stream leave. Callers of sync() then
 * return, and comm_check() has the failure by then. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "cuda/cuda.h"
#include "cuda/libs_nccl.h"
#include "worker/comm/transport.h"

enum {
    WATCH_MS = 20, /* comm.h: an abort is seen within 50 ms */
    FLIGHTS = 64,  /* operations of a channel that are queued and not done; one more waits for the oldest */
    /* ranks compare so many first operations of a channel on the host before they queue them; sizes and order repeat */
    CHECKED_OPS = 256,
    LINK_REGIONS = 64,
    STAGES = 40 /* sizes that a stage may take, each half as large again as the one before */
};

/* An operation on the stream. */
struct flight {
    cudaEvent_t done;
    struct comm_op op;
};

struct link_channel {
    struct device *dev;
    pthread_mutex_t lock; /* guards every call on nccl, and flight, first and next; never held while waiting */
    ncclComm_t nccl;      /* NULL before it is opened and after it was aborted */
    struct flight flight[FLIGHTS];
    unsigned first, next; /* the oldest that is not done; the slot after the newest */
    int64_t since_ms;     /* when the oldest was queued, or when the operation before it was done, if that is later */
    /* The last stage holds peers' chunks of the newest alltoall; the stages before it were too small. A single stage is
     * enough: on one stream, receiving comes after the readers of the earlier contents. */
    char *stage[STAGES];
    int nstages;
    size_t stage_bytes;
};

struct link_region {
    void *mem;
    ncclWindow_t window[COMM_CHANNELS]; /* NULL: not registered */
};

struct link {
    struct comm comm; /* must stay first */
    const struct nccl_api *api;
    struct comm *host; /* host bytes and the abort flag */
    int timeout_ms;
    struct link_channel channel[COMM_CHANNELS];
    struct link_region region[LINK_REGIONS];
    int nregions;

    pthread_t watchdog;
    bool watched; /* the thread was started */
    atomic_bool failed, quit;
    pthread_mutex_t lock; /* guards failure */
    struct err failure;   /* code 0: no failure */
};

/* Records a failure; the first one stays. Tells the other ranks and leaves the abort to the watchdog. May be called by
 * any thread. Returns the failure that holds now, in *err too. */
int link_fail(struct link *l, const struct err *why, struct err *err);
/* 0, or the failure. */
int link_state(struct link *l, struct err *err);
/* Waits until a call on a channel's communicator that returned r is complete. what: for the text, for example
 * "alltoall". */
int link_settle(struct link *l, enum comm_channel ch, ncclResult_t r, const char *what, int timeout_ms, struct err *err);

/* Must be called before an operation: there is no failure, there is room for one more, and at first all ranks mean the
 * same operation. */
int link_enter(struct link *l, const struct comm_op *op, struct err *err);
/* Must be called after the operation was queued: its deadline starts. */
int link_queued(struct link *l, const struct comm_op *op, struct err *err);

/* Implements comm_check(). */
int link_check(struct comm *c, enum comm_channel ch, struct err *err);

int link_watch(struct link *l, struct err *err);
/* Ends the watchdog; after a failure it has already aborted the communicators. */
void link_unwatch(struct link *l);

/* In nccl_move.c: functions of struct comm_ops. */
int link_alltoall(struct comm *c, const struct comm_op *op, const struct comm_planes *x, const void **ret_views, struct err *err);
int link_allgather(struct comm *c, const struct comm_op *op, void *buffer, const size_t *cut, struct err *err);
int link_exchange(struct comm *c, const struct comm_op *op, const void *mine, size_t bytes, int reader, const void **ret_views,
                  size_t *ret_sizes, struct err *err);
