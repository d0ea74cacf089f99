/* worker/core/pool.h - the compute threads of a rank. Static partition, so which thread does what never shows in the bits;
 * loader and communication threads never enter it. */
#pragma once
#include <stddef.h>

struct pool;
struct err;

/* threads >= 1, the caller's thread included. Caller frees with pool_free(). */
int pool_new(int threads, struct pool **ret_pool, struct err *err);
void pool_free(struct pool *p);
int pool_threads(const struct pool *p);
/* Runs fn(arg, from, to) so that [0, n) is covered once, in contiguous near-equal parts, one per thread; returns when all are done.
 * Called by one thread at a time (the one that owns the device). fn must not call pool_run() again. */
void pool_run(struct pool *p, size_t n, void (*fn)(void *arg, size_t from, size_t to), void *arg);
/* Runs fn(arg, index, thread) for each index in [0, n), handed out one by one to whichever thread is free; for parts of uneven
 * cost whose results do not depend on who computes them. thread is in [0, pool_threads()) and picks scratch memory. */
void pool_each(struct pool *p, size_t n, void (*fn)(void *arg, size_t index, int thread), void *arg);
