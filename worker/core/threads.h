/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/threads.h - the compute threads of a rank. The partition is
 * static, so the bits never show which thread did which part; loader and communication threads never enter it. */
#pragma once
#include <stddef.h>

struct threads;
struct err;

/* threads >= 1, the caller's thread included. Caller frees with threads_free(). */
int threads_new(int threads, struct threads **ret_threads, struct err *err);
void threads_free(struct threads *p);
int threads_count(const struct threads *p);
/* Runs fn(arg, from, to) so that [0, n) is covered once, in contiguous near-equal parts, one per thread; returns when
 * all are done. Must be called by one thread at a time (the owner of the device). fn must not call threads_run()
 * again. */
void threads_run(struct threads *p, size_t n, void (*fn)(void *arg, size_t from, size_t to), void *arg);
/* Runs fn(arg, index, thread) for each index in [0, n), handed out one by one to free threads. It suits parts of uneven
 * cost with results that do not depend on the thread. thread is in [0, threads_count()) and picks scratch memory. */
void threads_each(struct threads *p, size_t n, void (*fn)(void *arg, size_t index, int thread), void *arg);
