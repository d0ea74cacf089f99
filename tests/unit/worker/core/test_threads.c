/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_threads.c - compute threads: every index once,
 * parts contiguous and near-equal, many short rounds, also while threads sleep. uses: proto worker/core */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "proto/err.h"
#include "worker/core/threads.h"

enum { MOST = 1000, THREADS = 5 };

struct seen {
    atomic_int times[MOST];
    atomic_int parts;
    atomic_size_t part_min, part_max; /* lengths of a run's parts */
    int threads;
    atomic_int bad_thread;
};

static void count_run(void *arg, size_t from, size_t to)
{
    struct seen *s = arg;
    size_t n = to - from, old = atomic_load(&s->part_min);

    while (n < old && !atomic_compare_exchange_weak(&s->part_min, &old, n))
        ;
    old = atomic_load(&s->part_max);
    while (n > old && !atomic_compare_exchange_weak(&s->part_max, &old, n))
        ;
    atomic_fetch_add(&s->parts, 1);
    for (size_t i = from; i < to; i++)
        atomic_fetch_add(&s->times[i], 1);
}

static void count_each(void *arg, size_t index, int thread)
{
    struct seen *s = arg;

    if (thread < 0 || thread >= s->threads)
        atomic_store(&s->bad_thread, 1);
    atomic_fetch_add(&s->times[index], 1);
}

static void reset(struct seen *s, int threads)
{
    memset(s, 0, sizeof *s);
    atomic_store(&s->part_min, SIZE_MAX);
    s->threads = threads;
}

static void all_once(const struct seen *s, size_t n)
{
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(atomic_load(&s->times[i]), i < n);
}

static void every_index_once(void **state)
{
    static const size_t sizes[] = { 0, 1, 2, 3, 4, 5, 7, 16, 999, 1000 };
    static struct seen s;

    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        struct threads *t;
        struct err err;

        assert_int_equal(threads_new(threads, &t, &err), 0);
        assert_int_equal(threads_count(t), threads);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            reset(&s, threads);
            threads_run(t, sizes[i], count_run, &s);
            all_once(&s, sizes[i]);
            assert_true(atomic_load(&s.parts) <= threads);
            assert_true(sizes[i] < 2 || atomic_load(&s.part_max) - atomic_load(&s.part_min) <= 1);
            reset(&s, threads);
            threads_each(t, sizes[i], count_each, &s);
            all_once(&s, sizes[i]);
            assert_int_equal(atomic_load(&s.bad_thread), 0);
        }
        threads_free(t);
    }
}

/* Plain memory written in one round is visible to any thread in the next. */
struct chain {
    int64_t *from, *to;
};

static void chain_run(void *arg, size_t from, size_t to)
{
    const struct chain *c = arg;

    for (size_t i = from; i < to; i++)
        c->to[i] = c->from[(i + MOST / 2) % MOST] + 1;
}

static void rounds_follow_each_other(void **state)
{
    static int64_t a[MOST], b[MOST];
    struct timespec nap = { .tv_nsec = 2000000 };
    struct threads *t;
    struct err err;

    (void)state;
    assert_int_equal(threads_new(3, &t, &err), 0);
    for (int round = 0; round < 1000; round++) {
        struct chain c = { round % 2 ? b : a, round % 2 ? a : b };

        threads_run(t, MOST, chain_run, &c);
        if (round % 100 == 0)
            nanosleep(&nap, NULL); /* long enough for the threads to fall asleep */
    }
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(a[i], 1000);
    threads_free(t);
}

/* ---- a thread that has found no work and is about to sleep ---- */

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_pthread_cond_signal(pthread_cond_t *cond);
int __real_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);

/* The sleeper stops there until the waker either waits for its lock or wakes it before it sleeps. */
static struct {
    atomic_bool on, there; /* a thread must stop; it has stopped */
    atomic_bool waking;    /* the calls of the waker count from here on */
    atomic_bool locking, missed;
    pthread_t caller; /* either it sleeps and the other thread wakes it, or the other way round */
    bool caller_sleeps;
} border;

static void border_before(bool caller_sleeps)
{
    border.caller = pthread_self();
    border.caller_sleeps = caller_sleeps;
    border.there = border.waking = border.locking = border.missed = false;
    border.on = true;
}

/* Called by the waker right before it has news. */
static void border_reached(void)
{
    while (!border.there)
        sched_yield();
    border.waking = true;
}

static bool by_sleeper(void)
{
    return (pthread_equal(border.caller, pthread_self()) != 0) == border.caller_sleeps;
}

static bool by_waker(void)
{
    return border.waking && !by_sleeper();
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    if (by_waker())
        border.locking = true;
    return __real_pthread_mutex_lock(lock);
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
    if (!border.on || !by_sleeper())
        return __real_pthread_cond_wait(cond, lock);
    border.on = false;
    border.there = true;
    while (!border.locking && !border.missed)
        sched_yield();
    return border.missed ? 0 : __real_pthread_cond_wait(cond, lock); /* after a missed wake it must not wait for ever */
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    if (by_waker() && !border.locking)
        border.missed = true;
    return __real_pthread_cond_signal(cond);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    if (by_waker() && !border.locking)
        border.missed = true;
    return __real_pthread_cond_broadcast(cond);
}

/* The other thread ends its part when the caller is about to sleep. The caller ends its part when the other thread
 * needs no lock to begin. */
static void end_at_the_border(void *arg, size_t from, size_t to)
{
    atomic_bool *begun = arg;

    (void)to;
    if (from > 0) {
        *begun = true;
        border_reached();
    }
    while (!*begun)
        sched_yield();
}

static void the_end_is_not_missed(void **state)
{
    atomic_bool begun = false;
    struct threads *t;
    struct err err;

    (void)state;
    assert_int_equal(threads_new(2, &t, &err), 0);
    border_before(true);
    threads_run(t, 2, end_at_the_border, &begun);
    assert_true(border.there && border.locking && !border.missed);
    border.waking = false;
    threads_free(t);
}

static void nothing(void *arg, size_t from, size_t to)
{
    (void)arg, (void)from, (void)to;
}

static void the_beginning_is_not_missed(void **state)
{
    struct threads *t;
    struct err err;

    (void)state;
    border_before(false);
    assert_int_equal(threads_new(2, &t, &err), 0);
    border_reached();
    threads_run(t, 2, nothing, NULL);
    assert_true(border.locking && !border.missed);
    border.waking = false;
    threads_free(t);
}

static void refuses_no_threads(void **state)
{
    struct threads *t;
    struct err err;

    (void)state;
    assert_int_equal(threads_new(0, &t, &err), ERR_INPUT);
    assert_string_equal(err.msg, "there must be at least one thread, not 0");
    threads_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_once),      cmocka_unit_test(rounds_follow_each_other),
        cmocka_unit_test(the_end_is_not_missed), cmocka_unit_test(the_beginning_is_not_missed),
        cmocka_unit_test(refuses_no_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
