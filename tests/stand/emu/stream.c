/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/stream.c - CUDA's calls about copies, streams and events.
 * Streams that were made without cudaStreamNonBlocking order themselves with the default stream: here they share its
 * queue. */
#include <stdlib.h>

#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/queue.h"

struct emu_event {
    struct emu_stream *stream; /* NULL: never recorded */
    uint64_t number;
};

static uint64_t waits; /* of the host; under the emulator's lock */

uint64_t emu_waits(void)
{
    uint64_t n;

    emu_lock();
    n = waits;
    emu_unlock();
    return n;
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

/* Queues the copy. Pageable host memory is read at once (it may be reused when the call returns) and written before the
 * call returns. */
static cudaError_t copy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, struct emu_stream *stream, bool wait)
{
    enum emu_memory from, to;
    struct emu_work *t;
    cudaError_t e = emu_context();

    if (e == cudaSuccess && bytes > 0)
        e = check_copy(dst, src, bytes, kind);
    if (e != cudaSuccess || bytes == 0)
        return e;
    from = emu_memory_of(src, bytes);
    to = emu_memory_of(dst, bytes);
    t = from == EMU_PAGEABLE ? emu_work_new(EMU_COPY, "a copy", src, bytes) : emu_work_new(EMU_COPY, "a copy", NULL, 0);
    t->src = from == EMU_PAGEABLE ? NULL : src;
    t->dst = dst;
    t->size = bytes;
    emu_push(stream, t);
    if (wait || to == EMU_PAGEABLE) {
        struct emu_stream *s = emu_queue_of(stream);

        waits++;
        emu_run_until(s, s->queued);
    }
    return emu_context();
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    cudaError_t e;

    emu_lock();
    e = emu_error(copy(dst, src, bytes, kind, stream, false));
    emu_unlock();
    return e;
}

/* On the default stream, which does not order itself with non-blocking ones. From pageable memory to the device it
 * returns when the bytes are staged. */
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
    struct emu_work *t;
    cudaError_t e;

    emu_lock();
    e = emu_context();
    if (e == cudaSuccess && bytes > 0 && emu_memory_of(dst, bytes) == EMU_PAGEABLE)
        e = cudaErrorInvalidValue;
    if (e == cudaSuccess && bytes > 0) {
        t = emu_work_new(EMU_SET, "a memset", NULL, 0);
        t->dst = dst;
        t->value = value;
        t->size = bytes;
        emu_push(stream, t);
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
        emu_queue_of(NULL);
        *stream = emu_stream_add((flags & cudaStreamNonBlocking) == 0);
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
    struct emu_stream *s = emu_queue_of(stream);

    waits++;
    emu_run_until(s, s->queued);
    return emu_error(emu_context());
}

/* Queued tasks still run. */
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
    waits++;
    emu_run_all();
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

/* Has task `number` of s run? If not, a few tasks are run, so that the next query gets a better answer. */
static cudaError_t query(struct emu_stream *s, uint64_t number)
{
    if (s->done < number)
        emu_run_some(emu_random(4));
    if (emu_context() != cudaSuccess)
        return emu_error(emu_context());
    return s->done < number ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct emu_stream *s;
    cudaError_t e;

    emu_lock();
    s = emu_queue_of(stream);
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
    event->stream = emu_queue_of(stream);
    event->number = event->stream->queued;
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    struct emu_work *t;
    cudaError_t e;

    (void)flags;
    emu_lock();
    e = emu_error(emu_context());
    if (e == cudaSuccess && event->stream && event->stream->done < event->number) {
        t = emu_work_new(EMU_WAIT, "a wait for an event", NULL, 0);
        t->other = event->stream;
        t->number = event->number;
        emu_push(stream, t);
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
    waits++;
    if (event->stream)
        emu_run_until(event->stream, event->number);
    e = emu_error(emu_context());
    emu_unlock();
    return e;
}
