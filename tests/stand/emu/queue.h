/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/queue.h - queues of deferred work. A stream is a queue of
 * numbered tasks; an event is a stream and a number. Called with the lock held. */
#pragma once
#include "tests/stand/emu/internal.h"

enum emu_kind { EMU_KERNEL, EMU_COPY, EMU_SET, EMU_WAIT, EMU_TASK };

struct emu_work {
    struct emu_work *next;
    enum emu_kind kind;
    const char *what;
    struct emu_launch launch; /* EMU_KERNEL; arguments in bytes[] */
    int (*run)(void *arg);    /* EMU_TASK; its argument in bytes[] */
    void *dst;                /* EMU_COPY, EMU_SET */
    const void *src;          /* EMU_COPY; NULL: from bytes[] */
    size_t size;              /* of the copy, or of bytes[] */
    int value;
    struct emu_stream *other; /* EMU_WAIT */
    uint64_t number;
    _Alignas(16) char bytes[];
};

struct emu_stream {
    bool open, blocking;
    struct emu_work *head, **tail;
    uint64_t queued, done; /* numbers of the last task queued and run */
};

/* A new or unused stream. Streams are kept for ever, so that events may point to them. */
struct emu_stream *emu_stream_add(bool blocking);
/* The queue of a stream: blocking ones share that of the default stream, NULL. */
struct emu_stream *emu_queue_of(struct emu_stream *s);
/* A task with a copy of `size` bytes. */
struct emu_work *emu_work_new(enum emu_kind kind, const char *what, const void *bytes, size_t size);
/* Queues the task; now and then runs some of the queued tasks. */
void emu_push(struct emu_stream *stream, struct emu_work *t);
/* Runs tasks until task `number` of s is done: tasks that it needs, or any. */
void emu_run_until(struct emu_stream *s, uint64_t number);
/* Runs all that is queued now, or up to n tasks. */
void emu_run_all(void);
void emu_run_some(uint32_t n);
