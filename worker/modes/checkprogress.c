#include "worker/modes/checkprogress.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker/data/read/check.h"

enum { FIRST_S = 2, AGAIN_S = 5 };

struct checkprogress {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;
    const char *what, *hint;
    struct check_progress count;
};

static void tell(const struct checkprogress *p, bool first)
{
    const int done = atomic_load(&p->count.done), of = atomic_load(&p->count.of);

    fprintf(stderr, "checking %s", p->what);
    if (of > 0)
        fprintf(stderr, ": %d of %d images", done, of);
    fprintf(stderr, "%s\n", first ? p->hint : "");
    fflush(stderr);
}

static void *tell_now_and_then(void *arg)
{
    struct checkprogress *p = arg;
    struct timespec until;
    bool first = true;

    clock_gettime(CLOCK_MONOTONIC, &until);
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        until.tv_sec += first ? FIRST_S : AGAIN_S;
        while (!p->stop && pthread_cond_timedwait(&p->stopped, &p->lock, &until) != ETIMEDOUT)
            ;
        if (!p->stop)
            tell(p, first);
        first = false;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct checkprogress *checkprogress_start(const char *hint)
{
    struct checkprogress *p = calloc(1, sizeof *p);
    pthread_condattr_t attr;

    if (!p)
        return NULL;
    p->what = "the job";
    p->hint = hint;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->stopped, &attr);
    pthread_condattr_destroy(&attr);
    if (pthread_create(&p->thread, NULL, tell_now_and_then, p) == 0)
        return p;
    pthread_cond_destroy(&p->stopped);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

struct check_progress *checkprogress_phase(struct checkprogress *p, const char *what)
{
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->lock);
    p->what = what;
    atomic_store(&p->count.done, 0);
    atomic_store(&p->count.of, 0);
    pthread_mutex_unlock(&p->lock);
    return &p->count;
}

void checkprogress_stop(struct checkprogress *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->stopped);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->stopped);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
