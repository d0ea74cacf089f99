/* SPDX-License-Identifier: Apache-2.0 */ /* Waits with deadlines, and the watchdog thread that ends operations without
 * a chance. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "cuda/nccl_impl.h"

enum { SPINS = 300 }; /* calls of sched_yield() before settle() sleeps: queueing an operation takes NCCL's thread some 10 us */

static int64_t link_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void nap_us(long us)
{
    struct timespec t = { 0, us * 1000 };

    nanosleep(&t, NULL);
}

/* ---- failure ---- */

int link_state(struct link *l, struct err *err)
{
    int rc = 0;

    if (!atomic_load_explicit(&l->failed, memory_order_acquire))
        return 0;
    pthread_mutex_lock(&l->lock);
    rc = l->failure.code;
    if (err)
        *err = l->failure;
    pthread_mutex_unlock(&l->lock);
    return rc;
}

int link_fail(struct link *l, const struct err *why, struct err *err)
{
    pthread_mutex_lock(&l->lock);
    if (l->failure.code == 0)
        l->failure = *why;
    pthread_mutex_unlock(&l->lock);
    atomic_store_explicit(&l->failed, true, memory_order_release);
    l->host->ops->abort(l->host);
    return link_state(l, err);
}

/* Turns a result of NCCL into a failure of the link: `what` failed for NCCL's reason. */
static int link_nccl_failed(struct link *l, enum comm_channel ch, ncclResult_t r, const char *what, struct err *err)
{
    const char *detail = l->api->ncclGetLastError(NULL);
    struct err why;

    detail = detail ? detail : "";
    err_set(&why, ERR_DEVICE, "NCCL, %s on %s, rank %d: %s%s%.*s", what, comm_channel_name(ch), l->comm.rank, l->api->ncclGetErrorString(r),
            *detail ? ": " : "", (int)strcspn(detail, "\n"), detail);
    return link_fail(l, &why, err);
}

/* ---- waiting ---- */

/* The state of a communicator. ncclInProgress with *ret_gone: it was aborted. */
static ncclResult_t progress(struct link *l, struct link_channel *c, bool *ret_gone)
{
    ncclResult_t state = ncclInProgress, r = ncclSuccess;

    pthread_mutex_lock(&c->lock);
    *ret_gone = c->nccl == NULL;
    if (c->nccl)
        r = l->api->ncclCommGetAsyncError(c->nccl, &state);
    pthread_mutex_unlock(&c->lock);
    return r != ncclSuccess ? r : state;
}

int link_settle(struct link *l, enum comm_channel ch, ncclResult_t r, const char *what, int timeout_ms, struct err *err)
{
    int64_t deadline = link_now_ms() + timeout_ms;
    bool gone = false;

    if (r == ncclSuccess)
        r = ncclInProgress; /* some calls (registering memory) return this after only beginning: the communicator knows the state */
    for (int i = 0; r == ncclInProgress; i++) {
        int rc = link_state(l, err);

        if (rc < 0)
            return rc;
        if (link_now_ms() > deadline) {
            struct err why;

            err_set(&why, ERR_TIMEOUT, "NCCL, %s on %s, rank %d: not ready within %d ms", what, comm_channel_name(ch), l->comm.rank,
                    timeout_ms);
            return link_fail(l, &why, err);
        }
        if (i > 0)
            i < SPINS ? (void)sched_yield() : nap_us(200);
        r = progress(l, &l->channel[ch], &gone);
    }
    return r == ncclSuccess ? 0 : link_nccl_failed(l, ch, r, what, err);
}

int link_check(struct comm *comm, enum comm_channel ch, struct err *err)
{
    struct link *l = (struct link *)comm;
    bool gone;
    ncclResult_t r = progress(l, &l->channel[ch], &gone);
    int rc = link_state(l, err);

    return rc < 0 || r == ncclSuccess || r == ncclInProgress ? rc : link_nccl_failed(l, ch, r, "watched", err);
}

/* ---- operations on the stream ---- */

/* Removes finished operations. The caller holds the channel's lock. */
static cudaError_t retire(struct link_channel *c)
{
    cudaError_t e = cudaSuccess;

    while (c->first != c->next && (e = cudaEventQuery(c->flight[c->first % FLIGHTS].done)) == cudaSuccess) {
        c->first++;
        c->since_ms = link_now_ms();
    }
    if (e != cudaErrorNotReady)
        return e;
    (void)cudaGetLastError(); /* it is stored as an error and would be blamed on the next launch */
    return cudaSuccess;
}

/* Waits for the oldest operation if FLIGHTS are under way. The watchdog ends that wait, too. */
static int make_room(struct link *l, struct link_channel *c, struct err *err)
{
    for (;;) {
        int rc = link_state(l, err);
        bool room;

        if (rc < 0)
            return rc;
        pthread_mutex_lock(&c->lock);
        if (c->next - c->first == FLIGHTS)
            (void)retire(c); /* the watchdog reports errors */
        room = c->next - c->first < FLIGHTS;
        pthread_mutex_unlock(&c->lock);
        if (room)
            return 0;
        nap_us(100);
    }
}

int link_enter(struct link *l, const struct comm_op *op, struct err *err)
{
    struct comm_op on_host;
    struct err why;
    int rc = make_room(l, &l->channel[op->channel], err);

    if (rc < 0 || op->number > CHECKED_OPS)
        return rc;
    on_host = comm_op_on(l->host, op); /* no data: the host comm compares kind, bytes and fingerprint */
    rc = l->host->ops->exchange(l->host, &on_host, NULL, 0, -1, NULL, NULL, &why);
    return rc < 0 ? link_fail(l, &why, err) : 0;
}

int link_queued(struct link *l, const struct comm_op *op, struct err *err)
{
    struct link_channel *c = &l->channel[op->channel];
    struct flight *f;
    struct err why;
    int rc;

    pthread_mutex_lock(&c->lock);
    f = &c->flight[c->next % FLIGHTS];
    rc = cuda_check(cudaEventRecord(f->done, cuda_device(c->dev)->stream), comm_kind_name(op->kind), &why);
    if (rc == 0) {
        f->op = *op;
        if (c->first == c->next)
            c->since_ms = link_now_ms();
        c->next++;
    }
    pthread_mutex_unlock(&c->lock);
    return rc < 0 ? link_fail(l, &why, err) : 0;
}

/* ---- the watchdog ---- */

/* Returns an error in *why if the channel cannot continue. */
static int inspect(struct link *l, enum comm_channel ch, struct err *why)
{
    struct link_channel *c = &l->channel[ch];
    const struct comm_op *op = NULL;
    cudaError_t e;
    int64_t waited;
    int rc;

    pthread_mutex_lock(&c->lock);
    e = retire(c);
    if (c->first != c->next)
        op = &c->flight[c->first % FLIGHTS].op;
    waited = link_now_ms() - c->since_ms;
    rc = e == cudaSuccess ? 0 : cuda_check(e, op ? comm_kind_name(op->kind) : "link", why);
    if (rc == 0 && op && waited > l->timeout_ms)
        rc = err_set(
            why, ERR_TIMEOUT, "collective %u (%s on %s, %llu bytes) was not done within %d ms on rank %d: another rank did not take part",
            op->number, comm_kind_name(op->kind), comm_channel_name(ch), (unsigned long long)op->bytes, l->timeout_ms, l->comm.rank);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

static void look(struct link *l)
{
    struct err why = { 0 };
    int rc = 0;

    if (l->host->ops->aborted(l->host))
        rc = err_set(&why, ERR_ABORTED, "another rank left the job, told to rank %d", l->comm.rank);
    for (int ch = 0; rc == 0 && ch < COMM_CHANNELS; ch++) {
        bool gone;
        ncclResult_t r = progress(l, &l->channel[ch], &gone);

        if (r != ncclSuccess && r != ncclInProgress)
            rc = link_nccl_failed(l, (enum comm_channel)ch, r, "watched", &why);
        else if (!gone)
            rc = inspect(l, (enum comm_channel)ch, &why);
    }
    if (rc < 0)
        link_fail(l, &why, NULL);
}

struct aborting {
    struct link *l;
    struct link_channel *c;
    pthread_t thread;
    bool started;
};

/* Holds the lock during ncclCommAbort(), so that other threads find no communicator afterwards. */
static void *abort_channel(void *arg)
{
    struct aborting *a = arg;

    pthread_mutex_lock(&a->c->lock);
    if (a->c->nccl)
        (void)a->l->api->ncclCommAbort(a->c->nccl); /* its result does not matter any more */
    a->c->nccl = NULL;
    pthread_mutex_unlock(&a->c->lock);
    return NULL;
}

/* Aborts all channels at once: a communicator's memory is freed when the GPU is idle, and kernels of another
 * communicator keep it busy until that is aborted, too. */
static void abort_all(struct link *l)
{
    struct aborting a[COMM_CHANNELS];

    for (int ch = 0; ch < COMM_CHANNELS; ch++) {
        a[ch] = (struct aborting){ .l = l, .c = &l->channel[ch] };
        a[ch].started = pthread_create(&a[ch].thread, NULL, abort_channel, &a[ch]) == 0;
    }
    for (int ch = 0; ch < COMM_CHANNELS; ch++)
        if (!a[ch].started)
            abort_channel(&a[ch]);
    for (int ch = 0; ch < COMM_CHANNELS; ch++)
        if (a[ch].started)
            pthread_join(a[ch].thread, NULL);
}

static void *watch(void *arg)
{
    struct link *l = arg;

    while (!atomic_load(&l->failed) && !atomic_load(&l->quit)) {
        look(l);
        if (!atomic_load(&l->failed))
            nap_us(WATCH_MS * 1000L);
    }
    if (atomic_load(&l->failed))
        abort_all(l);
    return NULL;
}

int link_watch(struct link *l, struct err *err)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all); /* the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&l->watchdog, NULL, watch, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return err_set(err, -rc, "start the link's watchdog: %s", strerror(rc));
    l->watched = true;
    pthread_setname_np(l->watchdog, "link");
    return 0;
}

void link_unwatch(struct link *l)
{
    if (!l->watched)
        return;
    atomic_store(&l->quit, true);
    pthread_join(l->watchdog, NULL);
    l->watched = false;
}
