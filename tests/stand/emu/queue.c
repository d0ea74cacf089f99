/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/queue.c - the order in which deferred work runs.
 *
 * A caller that needs a task done runs tasks. They are drawn at random among the heads of all queues, or, equally
 * often, only among the tasks that are really needed. Now and then, queueing a task runs some tasks at once. */
#include "tests/stand/emu/queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/stand/emu/emu.h"

enum { MAX_QUEUED = 512, MAX_STREAMS = 256, AGAIN_MS = 20 };

static struct {
    pthread_cond_t changed;
    struct emu_stream *stream[MAX_STREAMS]; /* [0]: the default one */
    int nstreams;
    size_t queued;
    uint64_t run;
} g = { .changed = PTHREAD_COND_INITIALIZER };

uint64_t emu_tasks_run(void)
{
    uint64_t n;

    emu_lock();
    n = g.run;
    emu_unlock();
    return n;
}

size_t emu_tasks_queued(void)
{
    size_t n;

    emu_lock();
    n = g.queued;
    emu_unlock();
    return n;
}

/* ---- running tasks ---- */

/* Is the head of s something that must wait for another stream? Its number there is in the task. */
static bool blocked(const struct emu_stream *s)
{
    return s->head->kind == EMU_WAIT && s->head->other->done < s->head->number;
}

/* Runs a task; the context's error once it is lost. EMU_AGAIN: it cannot run yet. */
static int execute(struct emu_work *t)
{
    if (t->kind != EMU_WAIT && emu_task_starts() != cudaSuccess)
        return EMU_DONE;
    switch (t->kind) {
    case EMU_KERNEL:
        emu_run_grid(&t->launch, t->bytes);
        break;
    case EMU_COPY:
        memmove(t->dst, t->src ? t->src : t->bytes, t->size);
        break;
    case EMU_SET:
        memset(t->dst, t->value, t->size);
        break;
    case EMU_TASK:
        return t->run(t->bytes);
    case EMU_WAIT:
        break;
    }
    return EMU_DONE;
}

/* Runs the head of s. False: it asked to be called again. */
static bool run_head(struct emu_stream *s)
{
    struct emu_work *t = s->head;

    if (execute(t) == EMU_AGAIN)
        return false;
    s->head = t->next;
    if (!s->head)
        s->tail = &s->head;
    s->done++;
    g.queued--;
    g.run++;
    free(t);
    pthread_cond_broadcast(&g.changed);
    return true;
}

/* Runs a task that stream s needs; when s is NULL, any task. False: no task can run now. */
static bool run_needed(struct emu_stream *s)
{
    for (int hops = 0; hops < MAX_STREAMS && s->head; hops++) {
        if (!blocked(s))
            return run_head(s);
        s = s->head->other;
    }
    return false;
}

static bool run_any(void)
{
    int order[MAX_STREAMS], n = 0;

    for (int i = 0; i < g.nstreams; i++)
        if (g.stream[i]->head && !blocked(g.stream[i]))
            order[n++] = i;
    while (n > 0) {
        int i = (int)emu_random((uint32_t)n);

        if (run_head(g.stream[order[i]]))
            return true;
        order[i] = order[--n];
    }
    return false;
}

/* Another thread runs tasks, or will queue the task that is waited for. */
static void wait_for_change(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AGAIN_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    emu_wait(&g.changed, &until);
}

void emu_wake(void)
{
    pthread_cond_broadcast(&g.changed);
}

/* Runs tasks until task `number` of s is done. */
void emu_run_until(struct emu_stream *s, uint64_t number)
{
    bool lazy = emu_random(2) == 0;

    while (s->done < number) {
        bool ran;

        emu_memory_open(true);
        do
            ran = (lazy && run_needed(s)) || run_any();
        while (ran && s->done < number);
        emu_memory_open(false);
        if (s->done < number)
            wait_for_change();
    }
}

void emu_run_some(uint32_t n)
{
    emu_memory_open(true);
    while (n-- > 0 && run_any())
        ;
    emu_memory_open(false);
}

void emu_run_all(void)
{
    for (int i = 0; i < g.nstreams; i++)
        emu_run_until(g.stream[i], g.stream[i]->queued);
}

/* ---- queueing ---- */

struct emu_stream *emu_stream_add(bool blocking)
{
    struct emu_stream *s = NULL;

    for (int i = 1; i < g.nstreams && !s; i++)
        if (!g.stream[i]->open)
            s = g.stream[i];
    if (!s) {
        s = g.nstreams < MAX_STREAMS ? calloc(1, sizeof(*s)) : NULL;
        if (!s)
            emu_violation("more than %d streams", MAX_STREAMS);
        s->tail = &s->head;
        g.stream[g.nstreams++] = s;
    }
    s->open = true;
    s->blocking = blocking;
    return s;
}

/* The queue of a stream: blocking ones share that of the default stream. */
struct emu_stream *emu_queue_of(struct emu_stream *s)
{
    if (g.nstreams == 0)
        emu_stream_add(true);
    if (s && !s->open)
        emu_violation("a stream is used that was destroyed");
    return !s || s->blocking ? g.stream[0] : s;
}

struct emu_work *emu_work_new(enum emu_kind kind, const char *what, const void *bytes, size_t size)
{
    struct emu_work *t = calloc(1, sizeof(*t) + size);

    if (!t)
        emu_violation("no memory for a task");
    t->kind = kind;
    t->what = what;
    t->size = size;
    if (size > 0)
        memcpy(t->bytes, bytes, size);
    return t;
}

void emu_push(struct emu_stream *stream, struct emu_work *t)
{
    struct emu_stream *s = emu_queue_of(stream);

    t->next = NULL;
    *s->tail = t;
    s->tail = &t->next;
    s->queued++;
    g.queued++;
    pthread_cond_broadcast(&g.changed);
    if (g.queued > MAX_QUEUED)
        emu_run_some(MAX_QUEUED / 2);
    else if (emu_random(16) == 0)
        emu_run_some(1 + emu_random(16));
}

/* Does any 8-byte word of the bytes point into [from, to)? */
static bool mentions(const void *bytes, size_t size, const char *from, const char *to)
{
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
        uintptr_t p;

#ifdef EMU_MSAN
        if (__msan_test_shadow((const char *)bytes + i, sizeof(p)) >= 0)
            continue; /* padding of arguments */
#endif
        memcpy(&p, (const char *)bytes + i, sizeof(p));
        if (p >= (uintptr_t)from && p < (uintptr_t)to)
            return true;
    }
    return false;
}

const char *emu_queued_on(const char *from, const char *to)
{
    for (int i = 0; i < g.nstreams; i++)
        for (const struct emu_work *t = g.stream[i]->head; t; t = t->next) {
            bool args = t->kind == EMU_KERNEL || t->kind == EMU_TASK;

            if ((args && mentions(t->bytes, t->size, from, to)) || mentions(&t->dst, sizeof(t->dst), from, to) ||
                mentions(&t->src, sizeof(t->src), from, to))
                return t->what;
        }
    return NULL;
}

#ifdef EMU_MSAN
/* Finds arguments that point to ordinary host memory, which a GPU cannot read. The sanitizer excludes remains in
 * padding and unused elements. */
static void check_args(const struct emu_launch *l, const void *args, size_t bytes)
{
    const uintptr_t heap = 0x700000000000u, heap_end = 0x740000000000u, here = (uintptr_t)__builtin_frame_address(0),
                    stack = here + (8 << 20);

    for (size_t i = sizeof(uintptr_t); i + sizeof(uintptr_t) <= bytes; i += sizeof(uintptr_t)) {
        const char *at = (const char *)args + i;
        uintptr_t p;

        if (__msan_test_shadow(at, sizeof(p)) >= 0)
            continue;
        memcpy(&p, at, sizeof(p));
        if (((p >= heap && p < heap_end) || (p >= here && p < stack)) && emu_memory_of((const void *)p, 1) == EMU_PAGEABLE)
            emu_violation("%s:%d: kernel %s gets the address %p of host memory", l->site.file, l->site.line, l->kernel, (const void *)p);
    }
}
#else
static void check_args(const struct emu_launch *l, const void *args, size_t bytes)
{
    (void)l, (void)args, (void)bytes;
}
#endif

void emu_launch_queue(const struct emu_launch *l, struct emu_stream *stream, const void *args, size_t bytes)
{
    uint64_t threads = (uint64_t)l->block.x * l->block.y * l->block.z;
    struct emu_work *t;

    emu_lock();
    if (emu_error(emu_context()) != cudaSuccess)
        ;
    else if (threads == 0 || threads > EMU_MAX_THREADS || l->block.z > 64 || l->grid.x == 0 || l->grid.y == 0 || l->grid.z == 0 ||
             l->grid.x > INT32_MAX || l->grid.y > 65535 || l->grid.z > 65535 || bytes > EMU_MAX_ARGS)
        emu_error(cudaErrorInvalidConfiguration);
    else {
        check_args(l, args, bytes);
        t = emu_work_new(EMU_KERNEL, l->kernel, args, bytes);
        t->launch = *l;
        emu_push(stream, t);
    }
    emu_unlock();
}

int emu_task(struct emu_stream *stream, const char *what, int (*run)(void *arg), const void *arg, size_t bytes)
{
    struct emu_work *t;
    cudaError_t e;

    emu_lock();
    e = emu_error(emu_context());
    if (e == cudaSuccess) {
        t = emu_work_new(EMU_TASK, what, arg, bytes);
        t->run = run;
        emu_push(stream, t);
    }
    emu_unlock();
    return e;
}
