/* SPDX-License-Identifier: Apache-2.0 */ /* worker/gradients/allreduce.c - a bucket: all-to-all of chunks of the ranks'
 * gradients, the sum of these and its squares, all-gather of the sums. */
#include "worker/gradients/allreduce.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/host/tasks.h"
#include "worker/comm/comm.h"
#include "worker/core/device.h"
#include "worker/core/shards.h"
#include "worker/core/tree.h"
#include "worker/gradients/layout.h"
#include "worker/ops/families.h"

enum { PIECE_BLOCKS = 32 }; /* a CPU sums so many blocks at once: sums and summands stay in the L2 cache */

/* The data that each rank sends: its canonical segments, or one sum of all its shards. */
struct outline {
    int *planes;             /* [ranks]: number of planes of each rank */
    struct tree_part *chunk; /* [nchunk], of all ranks: the summands of a chunk */
    int nchunk;
};

struct allreduce {
    struct device *dev, *side;
    struct comm *comm;
    int rank, nranks, nshards;
    const struct layout *layout;
    float *planes, *sum;       /* sent by this rank; result */
    struct device_mark **mark; /* [buckets]: passed when this rank's part of a bucket is computed */

    /* Used by the communication thread only. */
    struct outline segments, sums, *sent; /* sent: of this step */
    const void **view;                    /* [most chunks] */
    size_t *cut;
    size_t *square_cut;            /* [ranks + 1], bytes: each rank's blocks, bucket by bucket */
    double *squares;               /* shared memory, in the same order */
    struct hash128 *hashes;        /* device memory: hashes of this rank's blocks, in the same order; NULL: not wanted */
    uint32_t *order;               /* device memory: place of each block of the flat space in `squares`. NULL: the same order */
    struct device_mark *all_there; /* passed when the squares of a step are complete */

    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int issued, done; /* buckets of this step; done also counts the squares. Guarded by lock, like all members below */
    bool quit;
    struct err failure; /* code 0: no failure */
};

/* ---- the communication thread ---- */

static int all_to_all(struct allreduce *r, const struct layout_bucket *b, struct err *err)
{
    struct comm_planes x = { r->planes, r->layout->blocks * LAYOUT_BLOCK * sizeof(float), r->sent->planes, r->cut };

    for (int j = 0; j <= r->nranks; j++)
        r->cut[j] = layout_chunk(b, j, r->nranks) * LAYOUT_BLOCK * sizeof(float);
    return comm_alltoall(r->comm, COMM_GRAD, &x, r->view, err);
}

/* Adds this rank's chunk of all ranks' segments: `count` numbers from number `from` on, to their place in the gathered
 * buffer. With one rank the data lies there already. */
static int add_chunk(struct allreduce *r, float *dst, size_t from, size_t count, struct err *err)
{
    if (r->sent->nchunk == 1 && r->view[0] == dst)
        return 0;
    for (int i = 0; i < r->sent->nchunk; i++)
        r->sent->chunk[i].data = (const float *)r->view[i] + from;
    return r->side->on->reduce->tree_add(r->side, dst + from, r->sent->chunk, r->sent->nchunk, count, err);
}

/* The hashes of this rank's blocks that have their squares at `at`. */
static struct hash128 *hashes_at(const struct allreduce *r, size_t at)
{
    return r->hashes ? r->hashes + (at - r->square_cut[r->rank] / sizeof(double)) : NULL;
}

/* Sums `blocks` blocks to dst, with their squares and hashes. A CPU does it piece by piece, so that a piece is still in
 * its cache. */
static int sum_chunk(struct allreduce *r, float *dst, size_t blocks, size_t squares_at, struct err *err)
{
    const size_t most = r->side->host_memory ? PIECE_BLOCKS : blocks;
    int rc = 0;

    for (size_t at = 0, n; at < blocks && rc == 0; at += n) {
        n = blocks - at < most ? blocks - at : most;
        rc = add_chunk(r, dst, at * LAYOUT_BLOCK, n * LAYOUT_BLOCK, err);
        if (rc == 0)
            rc = r->side->on->reduce->sum_squares(r->side, r->squares + squares_at + at, hashes_at(r, squares_at + at),
                                                  dst + at * LAYOUT_BLOCK, n * LAYOUT_BLOCK, err);
    }
    return rc;
}

static int sum_bucket(struct allreduce *r, int bucket, size_t *squares_at, struct err *err)
{
    const struct layout_bucket *b = &r->layout->bucket[bucket];
    size_t lo = layout_chunk(b, r->rank, r->nranks), hi = layout_chunk(b, r->rank + 1, r->nranks);
    int rc = r->side->ops->wait(r->side, r->mark[bucket], err);

    if (rc == 0)
        rc = all_to_all(r, b, err);
    if (rc == 0)
        rc = sum_chunk(r, r->sum + lo * LAYOUT_BLOCK, hi - lo, *squares_at, err);
    *squares_at += hi - lo;
    if (rc == 0)
        rc = comm_allgather(r->comm, COMM_GRAD, r->sum, r->cut, err);
    return rc;
}

/* The last task of a step. The host does not wait for the side queue; work queued on dev later does. */
static int gather_squares(struct allreduce *r, struct err *err)
{
    int rc = comm_allgather(r->comm, COMM_GRAD, r->squares, r->square_cut, err);

    return rc < 0 ? rc : r->side->ops->mark(r->side, r->all_there, err);
}

/* Waits for the next task: the number of a bucket, nbuckets for the squares, -1 to leave. */
static int next_task(struct allreduce *r)
{
    int task = -1;

    pthread_mutex_lock(&r->lock);
    for (;;) {
        bool all = r->done == r->layout->nbuckets && r->issued == r->layout->nbuckets;

        if (r->quit)
            break;
        if (r->failure.code == 0 && (r->done < r->issued || all)) {
            task = r->done;
            break;
        }
        pthread_cond_wait(&r->changed, &r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return task;
}

static void finish_task(struct allreduce *r, int rc, const struct err *err)
{
    pthread_mutex_lock(&r->lock);
    if (rc < 0)
        r->failure = *err;
    else
        r->done++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

static void *communicate(void *arg)
{
    struct allreduce *r = arg;
    size_t squares_at = 0;

    for (int task; (task = next_task(r)) >= 0;) {
        struct err err;
        int rc;

        if (task == 0)
            squares_at = r->square_cut[r->rank] / sizeof(double);
        rc = task < r->layout->nbuckets ? sum_bucket(r, task, &squares_at, &err) : gather_squares(r, &err);
        finish_task(r, rc, &err); /* set before the abort, so that a woken thread finds the reason */
        if (rc < 0)
            comm_abort(r->comm); /* the other ranks must not wait */
    }
    return NULL;
}

static int start_thread(struct allreduce *r, struct err *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&r->thread, NULL, communicate, r);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_set(err, -rc, "start the communication thread: %s", thread_lacks(rc));
    r->started = true;
    pthread_setname_np(r->thread, "allreduce");
    return 0;
}

/* ---- opening ---- */

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "sum of gradients: out of memory");
}

static int take_outline(struct allreduce *r, struct outline *o, int most)
{
    o->planes = calloc((size_t)r->nranks, sizeof(*o->planes));
    o->chunk = calloc((size_t)most, sizeof(*o->chunk));
    return o->planes && o->chunk ? 0 : -ENOMEM;
}

/* Computes the data that every rank sends, and the place of its blocks in the gathered squares. */
static int know_ranks(struct allreduce *r, struct err *err)
{
    const struct layout *p = r->layout;

    r->cut = calloc((size_t)r->nranks + 1, sizeof(*r->cut));
    r->square_cut = calloc((size_t)r->nranks + 1, sizeof(*r->square_cut));
    r->view = calloc((size_t)r->nshards, sizeof(*r->view));
    if (!r->cut || !r->square_cut || !r->view || take_outline(r, &r->segments, r->nshards) < 0 || take_outline(r, &r->sums, r->nranks) < 0)
        return no_memory(err);
    for (int j = 0; j < r->nranks; j++) {
        struct tree_span seg[TREE_MAX_SEGMENTS];
        struct span shards = rank_shards(j, r->nranks, r->nshards);
        size_t blocks = 0;

        r->segments.planes[j] = tree_segments(shards.lo, shards.hi, seg);
        for (int k = 0; k < r->segments.planes[j]; k++)
            r->segments.chunk[r->segments.nchunk++] = (struct tree_part){ seg[k].lo, seg[k].hi, NULL };
        r->sums.planes[j] = 1;
        r->sums.chunk[r->sums.nchunk++] = (struct tree_part){ j, j + 1, NULL };
        for (int i = 0; i < p->nbuckets; i++)
            blocks += layout_chunk(&p->bucket[i], j + 1, r->nranks) - layout_chunk(&p->bucket[i], j, r->nranks);
        r->square_cut[j + 1] = r->square_cut[j] + blocks * sizeof(double);
    }
    return 0;
}

/* Allocates as many planes as the rank with the most segments needs: symmetric memory must be equal on all ranks. */
static int take_memory(struct allreduce *r, struct err *err)
{
    const struct layout *p = r->layout;
    size_t bytes = p->blocks * LAYOUT_BLOCK * sizeof(float);
    int most = 0;

    for (int j = 0; j < r->nranks; j++)
        most = r->segments.planes[j] > most ? r->segments.planes[j] : most;
    r->sum = comm_alloc_shared(r->comm, bytes, err);
    r->squares = r->sum ? comm_alloc_shared(r->comm, p->blocks * sizeof(double), err) : NULL;
    if (!r->squares)
        return err->code;
    r->planes = r->nranks == 1 ? r->sum : comm_alloc(r->comm, bytes * (size_t)most, err);
    return r->planes ? 0 : err->code;
}

static int take_hashes(struct allreduce *r, struct err *err)
{
    size_t blocks = (r->square_cut[r->rank + 1] - r->square_cut[r->rank]) / sizeof(double);

    r->hashes = r->dev->ops->alloc(r->dev, (blocks + 1) * sizeof *r->hashes); /* a rank of a small model may have no block */
    return r->hashes ? 0 : no_memory(err);
}

/* The flat space is ordered neither by ranks nor by buckets, so this maps its blocks. With one rank both orders are
 * equal. */
static int take_order(struct allreduce *r, struct err *err)
{
    const struct layout *p = r->layout;
    size_t bytes = p->blocks * sizeof(*r->order);
    uint32_t *host, at = 0;
    int rc;

    if (r->nranks == 1)
        return 0;
    host = malloc(bytes);
    r->order = r->dev->ops->alloc(r->dev, bytes);
    if (!host || !r->order) {
        free(host);
        return no_memory(err);
    }
    for (int j = 0; j < r->nranks; j++)
        for (int i = 0; i < p->nbuckets; i++)
            for (size_t k = layout_chunk(&p->bucket[i], j, r->nranks); k < layout_chunk(&p->bucket[i], j + 1, r->nranks); k++)
                host[k] = at++;
    rc = r->dev->ops->upload(r->dev, r->order, host, bytes, err);
    free(host);
    return rc;
}

static int take_host(struct allreduce *r, struct err *err)
{
    const struct layout *p = r->layout;

    r->mark = calloc((size_t)p->nbuckets, sizeof(*r->mark));
    r->all_there = r->side->ops->mark_new(r->side);
    if (!r->mark || !r->all_there)
        return no_memory(err);
    for (int i = 0; i < p->nbuckets; i++) {
        r->mark[i] = r->dev->ops->mark_new(r->dev);
        if (!r->mark[i])
            return no_memory(err);
    }
    return take_order(r, err);
}

static void begin(struct allreduce *r, struct outline *sent)
{
    pthread_mutex_lock(&r->lock);
    assert(r->done == 0 || r->done > r->layout->nbuckets || r->failure.code < 0);
    r->issued = r->done = 0;
    r->sent = sent;
    pthread_mutex_unlock(&r->lock);
}

/* Runs two steps of zeros. A device with memory of its own may stop all queues when it first meets a kernel, a size or
 * a peer. Later that could be a deadlock: the communication thread would wait for a collective of the main thread, and
 * that thread's peer would wait for the communication thread. */
static int rehearse(struct allreduce *r, struct err *err)
{
    struct outline *const outlines[] = { &r->segments, &r->sums };
    int rc = 0;

    for (int i = 0; i < 2 && rc == 0 && !r->side->host_memory; i++) {
        begin(r, outlines[i]);
        pthread_mutex_lock(&r->lock);
        r->issued = r->layout->nbuckets;
        pthread_cond_broadcast(&r->changed);
        pthread_mutex_unlock(&r->lock);
        rc = allreduce_wait(r, err);
        if (rc == 0)
            rc = r->dev->ops->sync(r->dev, err);
        if (rc == 0)
            rc = comm_check(r->comm, COMM_GRAD, err);
    }
    return rc;
}

int allreduce_open(const struct gradients_options *opt, const struct layout *layout, struct allreduce **ret_allreduce, struct err *err)
{
    struct allreduce *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return no_memory(err);
    *r = (struct allreduce){ .dev = opt->dev,
                             .side = opt->side,
                             .comm = opt->comm,
                             .rank = comm_rank(opt->comm),
                             .nranks = comm_ranks(opt->comm),
                             .nshards = opt->nshards,
                             .layout = layout };
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    rc = know_ranks(r, err);
    if (rc == 0)
        rc = take_memory(r, err);
    if (rc == 0)
        rc = take_host(r, err);
    if (rc == 0 && opt->hashes)
        rc = take_hashes(r, err);
    if (rc == 0)
        rc = start_thread(r, err);
    if (rc == 0)
        rc = rehearse(r, err);
    if (rc < 0) {
        allreduce_close(r);
        return rc;
    }
    *ret_allreduce = r;
    return 0;
}

static void stop_thread(struct allreduce *r)
{
    bool busy;

    pthread_mutex_lock(&r->lock);
    busy = r->failure.code == 0 && (r->done < r->issued || r->done == r->layout->nbuckets);
    r->quit = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (busy)
        comm_abort(r->comm);
    pthread_join(r->thread, NULL);
}

void allreduce_close(struct allreduce *r)
{
    if (!r)
        return;
    if (r->started)
        stop_thread(r);
    for (int i = 0; r->mark && i < r->layout->nbuckets; i++)
        if (r->mark[i])
            r->dev->ops->mark_free(r->dev, r->mark[i]);
    free(r->mark);
    free(r->segments.planes);
    free(r->segments.chunk);
    free(r->sums.planes);
    free(r->sums.chunk);
    free(r->view);
    free(r->cut);
    free(r->square_cut);
    if (r->all_there)
        r->side->ops->mark_free(r->side, r->all_there);
    if (r->order)
        r->dev->ops->free(r->dev, r->order);
    if (r->hashes)
        r->dev->ops->free(r->dev, r->hashes);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- a step, on the compute thread ---- */

float *allreduce_planes(const struct allreduce *r)
{
    return r->planes;
}

float *allreduce_sum(const struct allreduce *r)
{
    return r->sum;
}

struct square_sums allreduce_squares(const struct allreduce *r)
{
    return (struct square_sums){ r->squares, r->order, (int)r->layout->blocks };
}

const struct hash128 *allreduce_hashes(const struct allreduce *r, int bucket)
{
    size_t at = r->square_cut[r->rank] / sizeof(double);

    for (int i = 0; i < bucket; i++)
        at += layout_chunk(&r->layout->bucket[i], r->rank + 1, r->nranks) - layout_chunk(&r->layout->bucket[i], r->rank, r->nranks);
    return hashes_at(r, at);
}

void allreduce_begin(struct allreduce *r, bool one_sum)
{
    begin(r, one_sum ? &r->sums : &r->segments);
}

int allreduce_issue(struct allreduce *r, int n, struct err *err)
{
    int rc = 0;

    for (int i = r->issued; i < n && rc == 0; i++) /* only this thread writes it */
        rc = r->dev->ops->mark(r->dev, r->mark[i], err);
    pthread_mutex_lock(&r->lock);
    if (rc == 0 && r->failure.code < 0) {
        *err = r->failure;
        rc = err->code;
    }
    if (rc == 0)
        r->issued = n;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* The caller must hold the lock. */
static int failure_of(const struct allreduce *r, struct err *err)
{
    int rc = r->failure.code;

    if (rc < 0 && err)
        *err = r->failure;
    return rc;
}

int allreduce_wait(struct allreduce *r, struct err *err)
{
    int rc;

    pthread_mutex_lock(&r->lock);
    while (r->failure.code == 0 && r->issued == r->layout->nbuckets && r->done <= r->layout->nbuckets)
        pthread_cond_wait(&r->changed, &r->lock);
    rc = failure_of(r, err);
    pthread_mutex_unlock(&r->lock);
    return rc < 0 ? rc : r->dev->ops->wait(r->dev, r->all_there, err);
}

int allreduce_state(struct allreduce *r, struct err *err)
{
    int rc;

    pthread_mutex_lock(&r->lock);
    rc = failure_of(r, err);
    pthread_mutex_unlock(&r->lock);
    return rc;
}
