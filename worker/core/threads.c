/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/threads.c - threads that wait for the next piece of work: first
 * in a short spin, since ops follow each other closely, then on a condition, since ranks may share cores. */
#include "worker/core/threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "proto/err.h"
#include "proto/host/tasks.h"

/* Some tens of microseconds: longer than the gap between two ops. A spin without success halves the next one, down to
 * the least: on shared cores a spinning thread blocks the threads that it waits for. */
enum { SPINS_MOST = 4000, SPINS_LEAST = 125 };

struct worker {
    struct threads *all;
    pthread_t id;
    int index; /* thread 0 is the caller */
};

struct threads {
    int threads, started;
    struct worker *worker; /* [threads]; [0] is unused */
    pthread_mutex_t lock;
    pthread_cond_t begun, done;
    atomic_uint round;  /* goes up by one for every piece of work */
    atomic_int running; /* threads still at work in this round, without the caller */
    bool stop;          /* set before a round begins */
    /* the work of this round */
    size_t n;
    void (*run)(void *arg, size_t from, size_t to);
    void (*each)(void *arg, size_t index, int thread);
    void *arg;
    atomic_size_t next; /* threads_each(): the next index to take */
    int spins;          /* of the caller, see adapt() */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Sets the length of the next spin: doubled after a success, halved after a failure. */
static void adapt(int *spins, bool enough)
{
    int next = enough ? 2 * *spins : *spins / 2;

    *spins = next > SPINS_MOST ? SPINS_MOST : next < SPINS_LEAST ? SPINS_LEAST : next;
}

static void work(struct threads *p, int thread)
{
    if (p->run) {
        size_t t = (size_t)p->threads, i = (size_t)thread;
        size_t from = p->n / t * i + (p->n % t < i ? p->n % t : i), to = from + p->n / t + (i < p->n % t);

        if (from < to)
            p->run(p->arg, from, to);
        return;
    }
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);

        if (i >= p->n)
            return;
        p->each(p->arg, i, thread);
    }
}

static unsigned wait_begun(struct threads *p, unsigned seen, int *spins)
{
    unsigned now;

    for (int i = 0; i < *spins; i++) {
        now = atomic_load_explicit(&p->round, memory_order_acquire);
        if (now != seen) {
            adapt(spins, true);
            return now;
        }
        relax();
    }
    adapt(spins, false);
    pthread_mutex_lock(&p->lock);
    while ((now = atomic_load_explicit(&p->round, memory_order_acquire)) == seen)
        pthread_cond_wait(&p->begun, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return now;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct threads *p = w->all;
    int spins = SPINS_MOST;

    for (unsigned seen = 0;;) {
        seen = wait_begun(p, seen, &spins);
        if (p->stop)
            return NULL;
        work(p, w->index);
        if (atomic_fetch_sub_explicit(&p->running, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock); /* the caller sees 0 before it sleeps, or this wakes it */
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void begin(struct threads *p)
{
    atomic_store_explicit(&p->running, p->started, memory_order_relaxed);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->round, 1, memory_order_release);
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
}

static void wait_done(struct threads *p)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(&p->running, memory_order_acquire) == 0) {
            adapt(&p->spins, true);
            return;
        }
        relax();
    }
    adapt(&p->spins, false);
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->running, memory_order_acquire) != 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void share(struct threads *p, size_t n)
{
    p->n = n;
    if (p->started == 0 || n < 2) { /* no other thread: the caller does all indices */
        if (p->run && n)
            p->run(p->arg, 0, n);
        for (size_t i = 0; p->each && i < n; i++)
            p->each(p->arg, i, 0);
        return;
    }
    begin(p);
    work(p, 0);
    wait_done(p);
}

void threads_run(struct threads *p, size_t n, void (*fn)(void *arg, size_t from, size_t to), void *arg)
{
    p->run = fn;
    p->each = NULL;
    p->arg = arg;
    share(p, n);
}

void threads_each(struct threads *p, size_t n, void (*fn)(void *arg, size_t index, int thread), void *arg)
{
    p->run = NULL;
    p->each = fn;
    p->arg = arg;
    share(p, n);
}

int threads_count(const struct threads *p)
{
    return p->threads;
}

int threads_new(int threads, struct threads **ret_threads, struct err *err)
{
    struct threads *p;

    if (threads < 1)
        return err_set(err, ERR_INPUT, "there must be at least one thread, not %d", threads);
    p = calloc(1, sizeof *p);
    if (p)
        p->worker = calloc((size_t)threads, sizeof *p->worker);
    if (!p || !p->worker) {
        free(p);
        return err_set(err, -ENOMEM, "out of memory: %d threads", threads);
    }
    p->threads = threads;
    p->spins = SPINS_MOST;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begun, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < threads; i++) {
        int rc;

        p->worker[i] = (struct worker){ .all = p, .index = i };
        rc = pthread_create(&p->worker[i].id, NULL, worker_main, &p->worker[i]);
        if (rc) {
            threads_free(p);
            return err_set(err, -rc, "start compute thread %d of %d: %s", i + 1, threads, thread_lacks(rc));
        }
        p->started++;
    }
    *ret_threads = p;
    return 0;
}

void threads_free(struct threads *p)
{
    if (!p)
        return;
    if (p->started) {
        p->stop = true;
        begin(p);
        for (int i = 1; i <= p->started; i++)
            pthread_join(p->worker[i].id, NULL);
    }
    pthread_cond_destroy(&p->begun);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p->worker);
    free(p);
}
