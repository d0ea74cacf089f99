/* tests/emu/stream.c - queues of deferred work, and when what of it runs.
 *
 * A stream is a queue of numbered tasks. An event is a stream and a number. Somebody who needs a task done has tasks run, drawn at random among the heads
 * of all queues or, as often, only those that are really needed; now and then queueing a task has some run at once. Streams that were made without
 * cudaStreamNonBlocking order themselves with the default stream: here they share its queue. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/emu/emu.h"
#include "tests/emu/internal.h"

enum { MAX_QUEUED = 512, MAX_STREAMS = 256, AGAIN_MS = 20 };
enum kind { KERNEL, COPY, SET, WAIT, TASK };

struct task {
    struct task *next;
    enum kind kind;
    const char *what;
    struct emu_launch launch; /* KERNEL; arguments in bytes[] */
    int (*run)(void *arg);    /* TASK; its argument in bytes[] */
    void *dst;                /* COPY, SET */
    const void *src;          /* COPY; NULL: from bytes[] */
    size_t size;              /* of the copy, or of bytes[] */
    int value;
    struct emu_stream *other; /* WAIT */
    uint64_t number;
    _Alignas(16) char bytes[];
};

struct emu_stream {
    bool open, blocking;
    struct task *head, **tail;
    uint64_t queued, done; /* numbers of the last task queued and run */
};

struct emu_event {
    struct emu_stream *stream; /* NULL: never recorded */
    uint64_t number;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct emu_stream *stream[MAX_STREAMS]; /* [0]: the default one. Kept for ever, so that events may point to them */
    int nstreams;
    size_t queued;
    uint64_t run, random;
    bool seeded, running;
    int fail_after, fail_with;
    cudaError_t lost; /* the context's sticky error */
} g = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static __thread cudaError_t last_error;

void emu_lock(void)
{
    pthread_mutex_lock(&g.lock);
}

void emu_unlock(void)
{
    pthread_mutex_unlock(&g.lock);
}

void emu_violation(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("emulated GPU: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}

/* ---- randomness ---- */

static void seed_with(uint64_t seed)
{
    g.random = seed * 0x9E3779B97F4A7C15u + 0x2545F4914F6CDD1Du;
    g.seeded = true;
}

void emu_seed(uint64_t seed)
{
    emu_lock();
    seed_with(seed);
    emu_unlock();
}

/* splitmix64; the high half times n is uniform enough for schedules. */
uint32_t emu_random(uint32_t n)
{
    uint64_t x;

    if (!g.seeded) {
        const char *s = getenv("EMU_SEED");

        seed_with(s ? strtoull(s, NULL, 10) : 1);
    }
    x = g.random += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
    return (uint32_t)((x >> 32) * n >> 32);
}

/* ---- errors ---- */

cudaError_t emu_error(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        last_error = e;
    return e;
}

cudaError_t emu_context(void)
{
    if (emu_device_absent())
        return cudaErrorNoDevice;
    return g.lost;
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t e;

    emu_lock();
    e = g.lost != cudaSuccess ? g.lost : last_error;
    emu_unlock();
    return e;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();

    last_error = cudaSuccess;
    return e;
}

void emu_fail_task_after(int n, int error)
{
    emu_lock();
    g.fail_after = n;
    g.fail_with = error;
    emu_unlock();
}

void emu_revive(void)
{
    emu_lock();
    g.lost = cudaSuccess;
    last_error = cudaSuccess;
    emu_unlock();
}

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
    return s->head->kind == WAIT && s->head->other->done < s->head->number;
}

/* Runs a task; the context's error once it is lost. EMU_AGAIN: it cannot run yet. */
static int execute(struct task *t)
{
    if (g.fail_after > 0 && t->kind != WAIT && --g.fail_after == 0)
        g.lost = (cudaError_t)g.fail_with;
    if (g.lost != cudaSuccess)
        return EMU_DONE;
    switch (t->kind) {
    case KERNEL:
        emu_run_grid(&t->launch, t->bytes);
        break;
    case COPY:
        memmove(t->dst, t->src ? t->src : t->bytes, t->size);
        break;
    case SET:
        memset(t->dst, t->value, t->size);
        break;
    case TASK:
        return t->run(t->bytes);
    case WAIT:
        break;
    }
    return EMU_DONE;
}

/* Runs the head of s. False: it asked to be called again. */
static bool run_head(struct emu_stream *s)
{
    struct task *t = s->head;

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

/* Runs one task that stream s needs; when s is NULL, any. False: none can run now. */
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

/* Another thread runs tasks, or will queue what a task waits for. */
static void wait_for_change(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += AGAIN_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&g.changed, &g.lock, &until);
}

void emu_wake(void)
{
    pthread_cond_broadcast(&g.changed);
}

/* Runs tasks until task `number` of s is done. */
static void run_until(struct emu_stream *s, uint64_t number)
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

static void run_some(uint32_t n)
{
    emu_memory_open(true);
    while (n-- > 0 && run_any())
        ;
    emu_memory_open(false);
}

/* ---- queueing ---- */

static struct emu_stream *add_stream(bool blocking)
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
static struct emu_stream *queue_of(struct emu_stream *s)
{
    if (g.nstreams == 0)
        add_stream(true);
    if (s && !s->open)
        emu_violation("a stream is used that was destroyed");
    return !s || s->blocking ? g.stream[0] : s;
}

static struct task *new_task(enum kind kind, const char *what, const void *bytes, size_t size)
{
    struct task *t = calloc(1, sizeof(*t) + size);

    if (!t)
        emu_violation("no memory for a task");
    t->kind = kind;
    t->what = what;
    t->size = size;
    if (size > 0)
        memcpy(t->bytes, bytes, size);
    return t;
}

static void push(struct emu_stream *stream, struct task *t)
{
    struct emu_stream *s = queue_of(stream);

    t->next = NULL;
    *s->tail = t;
    s->tail = &t->next;
    s->queued++;
    g.queued++;
    pthread_cond_broadcast(&g.changed);
    if (g.queued > MAX_QUEUED)
        run_some(MAX_QUEUED / 2);
    else if (emu_random(16) == 0)
        run_some(1 + emu_random(16));
}

/* Does any 8-byte word of the bytes point into [from, to)? */
static bool mentions(const void *bytes, size_t size, const char *from, const char *to)
{
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
        uintptr_t p;

        memcpy(&p, (const char *)bytes + i, sizeof(p));
#ifdef EMU_MSAN
        __msan_unpoison(&p, sizeof(p)); /* padding of arguments */
#endif
        if (p >= (uintptr_t)from && p < (uintptr_t)to)
            return true;
    }
    return false;
}

const char *emu_queued_on(const char *from, const char *to)
{
    for (int i = 0; i < g.nstreams; i++)
        for (const struct task *t = g.stream[i]->head; t; t = t->next) {
            bool args = t->kind == KERNEL || t->kind == TASK;

            if ((args && mentions(t->bytes, t->size, from, to)) || mentions(&t->dst, sizeof(t->dst), from, to) ||
                mentions(&t->src, sizeof(t->src), from, to))
                return t->what;
        }
    return NULL;
}

#ifdef EMU_MSAN
/* Arguments that point to ordinary host memory: a GPU cannot read that. The sanitizer tells them from what is left over in padding and unused elements. */
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
    struct task *t;

    emu_lock();
    if (emu_error(emu_context()) != cudaSuccess)
        ;
    else if (threads == 0 || threads > EMU_MAX_THREADS || l->block.z > 64 || l->grid.x == 0 || l->grid.y == 0 || l->grid.z == 0 ||
             l->grid.x > INT32_MAX || l->grid.y > 65535 || l->grid.z > 65535 || bytes > EMU_MAX_ARGS)
        emu_error(cudaErrorInvalidConfiguration);
    else {
        check_args(l, args, bytes);
        t = new_task(KERNEL, l->kernel, args, bytes);
        t->launch = *l;
        push(stream, t);
    }
    emu_unlock();
}

int emu_task(struct emu_stream *stream, const char *what, int (*run)(void *arg), const void *arg, size_t bytes)
{
    struct task *t;
    cudaError_t e;

    emu_lock();
    e = emu_error(emu_context());
    if (e == cudaSuccess) {
        t = new_task(TASK, what, arg, bytes);
        t->run = run;
        push(stream, t);
    }
    emu_unlock();
    return e;
}

/* ---- copies ---- */

static cudaError_t check_copy(const void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    static const struct {
        bool dst, src;
    } device[] = { { false, false }, { true, false }, { false, true }, { true, true } };
    bool to = emu_memory_of(dst, bytes) == EMU_DEVICE, from = emu_memory_of(src, bytes) == EMU_DEVICE;

    if (kind == cudaMemcpyDefault || (device[kind].dst == to && device[kind].src == from))
        return cudaSuccess;
    return cudaErrorInvalidValue;
}

/* Queues the copy. Pageable host memory is read at once (it may be reused when the call returns) and written before the call returns. */
static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, struct emu_stream *stream, bool wait)
{
    enum emu_memory from, to;
    struct task *t;
    cudaError_t e = emu_context();

    if (e == cudaSuccess && bytes > 0)
        e = check_copy(dst, src, bytes, kind);
    if (e != cudaSuccess || bytes == 0)
        return e;
    from = emu_memory_of(src, bytes);
    to = emu_memory_of(dst, bytes);
    t = from == EMU_PAGEABLE ? new_task(COPY, "a copy", src, bytes) : new_task(COPY, "a copy", NULL, 0);
    t->src = from == EMU_PAGEABLE ? NULL : src;
    t->dst = dst;
    t->size = bytes;
    push(stream, t);
    if (wait || to == EMU_PAGEABLE) {
        struct emu_stream *s = queue_of(stream);

        run_until(s, s->queued);
    }
    return g.lost;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t e;

    emu_lock();
    e = emu_error(copy(dst, src, bytes, kind, stream, false));
    emu_unlock();
    return e;
}

/* On the default stream, which does not order itself with non-blocking ones. From pageable memory to the device it returns when the bytes are staged. */
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t e;

    emu_lock();
    e = emu_error(copy(dst, src, bytes, kind, NULL, emu_memory_of(dst, bytes) != EMU_DEVICE || emu_memory_of(src, bytes) == EMU_PINNED));
    emu_unlock();
    return e;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    struct task *t;
    cudaError_t e;

    emu_lock();
    e = emu_context();
    if (e == cudaSuccess && bytes > 0 && emu_memory_of(dst, bytes) == EMU_PAGEABLE)
        e = cudaErrorInvalidValue;
    if (e == cudaSuccess && bytes > 0) {
        t = new_task(SET, "a memset", NULL, 0);
        t->dst = dst;
        t->value = value;
        t->size = bytes;
        push(stream, t);
    }
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, NULL);
}

/* ---- streams and events ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t e;

    (void)priority;
    emu_lock();
    e = emu_error(emu_context());
    if (e == cudaSuccess) {
        queue_of(NULL);
        *stream = add_stream((flags & cudaStreamNonBlocking) == 0);
    }
    emu_unlock();
    return e;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

static cudaError_t synchronize(cudaStream_t stream)
{
    struct emu_stream *s = queue_of(stream);

    run_until(s, s->queued);
    return emu_error(emu_context());
}

/* What is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t e;

    emu_lock();
    e = synchronize(stream);
    stream->open = false;
    emu_unlock();
    return e;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t e;

    emu_lock();
    e = synchronize(stream);
    emu_unlock();
    return e;
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t e;

    emu_lock();
    queue_of(NULL);
    for (int i = 0; i < g.nstreams; i++)
        run_until(g.stream[i], g.stream[i]->queued);
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

/* Has task `number` of s run? Where not, a little is done, so that whoever asks again gets a better answer. */
static cudaError_t query(struct emu_stream *s, uint64_t number)
{
    if (s->done < number)
        run_some(emu_random(4));
    if (g.lost != cudaSuccess)
        return emu_error(g.lost);
    return s->done < number ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct emu_stream *s;
    cudaError_t e;

    emu_lock();
    s = queue_of(stream);
    e = query(s, s->queued);
    emu_unlock();
    return e;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t e;

    (void)flags;
    emu_lock();
    e = emu_context();
    *event = e == cudaSuccess ? calloc(1, sizeof(**event)) : NULL;
    if (e == cudaSuccess && !*event)
        e = cudaErrorMemoryAllocation;
    emu_error(e);
    emu_unlock();
    return e;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    cudaError_t e;

    emu_lock();
    event->stream = queue_of(stream);
    event->number = event->stream->queued;
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct task *t;
    cudaError_t e;

    (void)flags;
    emu_lock();
    e = emu_error(emu_context());
    if (e == cudaSuccess && event->stream && event->stream->done < event->number) {
        t = new_task(WAIT, "a wait for an event", NULL, 0);
        t->other = event->stream;
        t->number = event->number;
        push(stream, t);
    }
    emu_unlock();
    return e;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t e;

    emu_lock();
    e = event->stream ? query(event->stream, event->number) : cudaSuccess;
    emu_unlock();
    return e;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t e;

    emu_lock();
    if (event->stream)
        run_until(event->stream, event->number);
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}
