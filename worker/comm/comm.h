/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/comm.h - moves bytes between the ranks of a job. Transports
 * never add: the caller adds on a device, in the canonical tree.
 *
 * Two channels, each used by one thread at a time: COMM_GRAD by the communication thread, COMM_SYNC by the main thread.
 * All ranks enter the same operations of a channel in the same order; an operation carries {kind, number, bytes,
 * fingerprint} and a mismatch between ranks is an error that names both. Every wait has a deadline and sees the abort
 * flag within 50 ms. An error is final: it sets the abort flag (so the other ranks stop too) and the rank leaves the
 * job; no operation of a comm that has failed succeeds afterwards. A single rank runs the same code and never waits.
 *
 * When memory may be rewritten: an operation returns when all ranks have entered it. Bytes that a rank sent, or wrote
 * into its part of a gathered buffer, may be read by the others until they enter their next operation on that channel.
 * So a rank may rewrite it as soon as it has completed a later operation on the same channel; a reader finishes reading
 * before it enters the next one.
 *
 * How other transports implement this. There are two for device memory that the host cannot read. Both stand beside an
 * open comm `host` of the same ranks, which carries host bytes and holds the abort flag. Staged (comm/staged.h) moves
 * device memory through the host's. A link (NCCL, device.h link_open()) queues on the device of the channel.
 * comm_alloc() is ncclMemAlloc(), registered as a symmetric window where that exists; comm_alloc_shared() is the same
 * memory, private to each rank. alltoall is a group of ncclSend/ncclRecv into the transport's own stages (the views
 * point there); allgather is ncclAllGather or a group of ncclBroadcast. Its operations return when they are queued.
 * sync() of that device waits, and comm_check() after it tells whether the data has arrived. Ranks compare their
 * operations on `host` for the first few hundred operations of a channel only: then order and sizes repeat from step to
 * step. A watchdog polls the state of the communicators against the deadline and the abort flag and ends their work. On
 * a link, work queued later on the same device is ordered after the operation, so such work may rewrite the memory at
 * once. Writes queued earlier on the same device are sent. Other queues use marks. TCP: a full mesh of sockets and one
 * poll loop; alltoall receives into a stage, allgather straight into place, each frame starts with {channel, number,
 * kind, bytes, fingerprint}; a closed socket is ERR_ABORTED at once. Neither needs a change in the callers of this
 * header. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct comm;

enum { COMM_MAX_RANKS = 256, COMM_ALIGN = 4096 };
enum comm_channel { COMM_GRAD, COMM_SYNC, COMM_CHANNELS };

/* Called by the entering thread before an operation waits, for the progress page: `number` counts the channel's
 * operations from 1. */
struct comm_hook {
    void (*enter)(void *arg, int channel, uint32_t number, uint64_t fingerprint);
    void *arg;
};

struct comm_options {
    /* shared memory that all ranks inherit and that is unused so far (a memfd, empty); -1: own memory, one rank only */
    int fd;
    int rank, nranks; /* at most COMM_MAX_RANKS */
    int timeout_ms;   /* for every single wait, and for the wait for all ranks to open */
    struct comm_hook hook;
    /* device.h link_open() only: the open comm of the same ranks beside it, borrowed, closed after it */
    struct comm *host;
};

/* Memory planes with one layout on all ranks: rank i sends planes[i] planes, rank j gets bytes [cut[j], cut[j + 1]) of
 * each of them. */
struct comm_planes {
    const void *mem;    /* plane 0, inside comm_alloc() memory, the same place on every rank; on one rank any memory */
    size_t plane_bytes; /* from one plane to the next */
    const int *planes;  /* [nranks] */
    const size_t *cut;  /* [nranks + 1], ascending */
};

/* Returns when all ranks have opened, ERR_TIMEOUT if a rank did not, ERR_INPUT for invalid options, ERR_STATE if an
 * earlier attempt used fd. The caller keeps fd and closes the comm. */
int comm_open_shm(const struct comm_options *opt, struct comm **ret_comm, struct err *err);
/* Unmaps all memory that was allocated from it. Does not tell the others: a rank that leaves early must call
 * comm_abort(). NULL is ignored. */
void comm_close(struct comm *c);
int comm_rank(const struct comm *c);
int comm_ranks(const struct comm *c);

/* Memory that peers can read, page aligned and zeroed; every rank calls in the same order with the same sizes, while no
 * operation is under way. Pages are taken when they are touched. Belongs to the comm. NULL with *err filled: no
 * memory. */
void *comm_alloc(struct comm *c, size_t bytes, struct err *err);
/* A gathered buffer, for comm_allgather(): one common region in shared memory, private memory of each rank elsewhere.
 * Otherwise as above. */
void *comm_alloc_shared(struct comm *c, size_t bytes, struct err *err);

/* ret_views: [sum of planes], rank by rank then plane by plane: this rank's chunk of that plane, readable until the
 * next operation. */
int comm_alltoall(struct comm *c, enum comm_channel ch, const struct comm_planes *x, const void **ret_views, struct err *err);
/* buffer: inside comm_alloc_shared() memory. Rank r wrote bytes [cut[r], cut[r + 1]); afterwards all of them are
 * there. */
int comm_allgather(struct comm *c, enum comm_channel ch, void *buffer, const size_t *cut, struct err *err);
/* Rank 0's bytes go to all; private memory of any size. */
int comm_broadcast(struct comm *c, enum comm_channel ch, void *data, size_t bytes, struct err *err);
/* Every rank's bytes (private memory, any number of bytes each) go to rank 0, which gets them in rank order in
 * *ret_data, one allocation that the caller frees, rank r's from ret_cut[r] to ret_cut[r + 1]. Other ranks get NULL.
 * ret_cut: [nranks + 1], filled on all ranks. */
int comm_gather(struct comm *c, enum comm_channel ch, const void *data, size_t bytes, void **ret_data, size_t *ret_cut, struct err *err);
/* Also checks that all ranks have made the same allocations. */
int comm_barrier(struct comm *c, enum comm_channel ch, struct err *err);

/* Must follow a sync() of the channel's device: returns 0 if every operation entered before has arrived, else the error
 * that ended the comm. Always 0 on transports with operations that return when they are done. */
int comm_check(struct comm *c, enum comm_channel ch, struct err *err);

/* Makes every operation of every rank end with ERR_ABORTED, the waiting ones too. May be called by any thread. */
void comm_abort(struct comm *c);
/* Has any rank called comm_abort()? May be called by any thread. */
bool comm_aborted(const struct comm *c);
