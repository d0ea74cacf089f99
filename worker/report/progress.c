#include "worker/report/progress.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "proto/err.h"
#include "proto/host/tasks.h"

/* A process is one rank with one page, so one heartbeat thread is enough. */
static struct beat {
    struct progress *page;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
} beat = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void *beat_main(void *arg)
{
    struct beat *b = arg;
    struct timespec next;

    pthread_mutex_lock(&b->lock);
    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!b->stop) {
        atomic_fetch_add_explicit(&b->page->heartbeat, 1, memory_order_relaxed);
        next.tv_sec++;
        while (!b->stop && pthread_cond_timedwait(&b->wake, &b->lock, &next) != ETIMEDOUT)
            continue;
        clock_gettime(CLOCK_MONOTONIC, &next);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* The heartbeat thread blocks signals: the trainer handles them. */
static int start_thread(struct beat *b)
{
    pthread_condattr_t attr;
    sigset_t all, old;
    int rc;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &attr);
    pthread_condattr_destroy(&attr);
    b->stop = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&b->thread, NULL, beat_main, b);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int progress_open(int fd, struct progress **ret, struct err *err)
{
    int rc, flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    struct progress *p;

    if (beat.page)
        return err_set(err, ERR_STATE, "the progress page is open already");
    p = mmap(NULL, PROGRESS_BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        return err_sys(err, "map the progress page, descriptor %d", fd);
    atomic_store(&p->version, PROGRESS_VERSION);
    atomic_store(&p->phase, PHASE_STARTING);
    beat.page = p;
    rc = start_thread(&beat);
    if (rc != 0) {
        beat.page = NULL;
        munmap(p, PROGRESS_BYTES);
        return err_set(err, -rc, "start the heartbeat thread: %s", thread_lacks(rc));
    }
    atomic_store(&p->magic, PROGRESS_MAGIC);
    *ret = p;
    return 0;
}

void progress_close(struct progress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&beat.lock);
    beat.stop = true;
    pthread_cond_signal(&beat.wake);
    pthread_mutex_unlock(&beat.lock);
    pthread_join(beat.thread, NULL);
    pthread_cond_destroy(&beat.wake);
    beat.page = NULL;
    munmap(p, PROGRESS_BYTES);
}

static void changed(struct progress *p)
{
    atomic_fetch_add_explicit(&p->changes, 1, memory_order_release);
}

void progress_phase(struct progress *p, enum progress_phase phase)
{
    atomic_store_explicit(&p->phase, phase, memory_order_relaxed);
    atomic_store_explicit(&p->done_in_phase, 0, memory_order_relaxed);
    atomic_store_explicit(&p->todo_in_phase, 0, memory_order_relaxed);
    changed(p);
}

void progress_step(struct progress *p, uint64_t step)
{
    atomic_store_explicit(&p->step, step, memory_order_relaxed);
    changed(p);
}

void progress_collective(struct progress *p, enum progress_channel channel, uint64_t fingerprint)
{
    uint64_t last = atomic_load_explicit(&p->collective[channel], memory_order_relaxed);

    atomic_store_explicit(&p->collective[channel], ((last >> 32) + 1) << 32 | (uint32_t)fingerprint, memory_order_relaxed);
    changed(p);
}

void progress_images(struct progress *p, uint64_t images_of_rank, uint64_t images_of_job)
{
    atomic_store_explicit(&p->images, images_of_rank, memory_order_relaxed);
    atomic_store_explicit(&p->images_total, images_of_job, memory_order_relaxed);
}

void progress_done(struct progress *p, uint64_t done, uint64_t todo)
{
    atomic_store_explicit(&p->todo_in_phase, todo, memory_order_relaxed);
    atomic_store_explicit(&p->done_in_phase, done, memory_order_relaxed);
}

void progress_layer(struct progress *p)
{
    changed(p);
}
