/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/comm/ranks.h - real processes over real shared memory,
 * for the tests of everything that ranks do together. Children report failures on stderr and leave by _exit(): cmocka's
 * asserts belong to the parent. */
#pragma once
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/err.h"
#include "worker/comm/comm.h"

/* In a child: a condition that must hold. */
#define NEED(cond)                                                                \
    do {                                                                          \
        if (!(cond)) {                                                            \
            fprintf(stderr, "%s:%d: rank needs %s\n", __FILE__, __LINE__, #cond); \
            fflush(stderr);                                                       \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)
#define NEED_OK(call)                                                                       \
    do {                                                                                    \
        int rc_ = (call);                                                                   \
        if (rc_ < 0) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, rc_, err.msg); \
            fflush(stderr);                                                                 \
            _exit(1);                                                                       \
        }                                                                                   \
    } while (0)

typedef void rank_fn(struct comm *c, void *arg);

static inline struct comm *rank_open(int fd, int rank, int nranks, int timeout_ms)
{
    struct comm_options opt = { .fd = fd, .rank = rank, .nranks = nranks, .timeout_ms = timeout_ms };
    struct comm *c = NULL;
    struct err err;

    NEED_OK(comm_open_shm(&opt, &c, &err));
    return c;
}

/* Sleeps up to max_us, another time for every rank and call, so that ranks meet in every order. */
static inline void rank_delay(unsigned *seed, int max_us)
{
    struct timespec t = { 0, 0 };

    *seed = *seed * 1664525u + 1013904223u;
    t.tv_nsec = (long)((*seed >> 8) % (unsigned)max_us) * 1000;
    nanosleep(&t, NULL);
}

static inline void start_ranks(int fd, int nranks, int timeout_ms, rank_fn *fn, void *arg, pid_t *ret_pids)
{
    for (int r = 0; r < nranks; r++) {
        ret_pids[r] = fork();
        if (ret_pids[r] == 0) {
            struct comm *c = rank_open(fd, r, nranks, timeout_ms);

            fn(c, arg);
            comm_close(c);
            _exit(0);
        }
    }
}

/* Returns how many did not leave with 0. */
static inline int wait_ranks(const pid_t *pids, int nranks)
{
    int bad = 0, status;

    for (int r = 0; r < nranks; r++)
        if (waitpid(pids[r], &status, 0) != pids[r] || status != 0)
            bad++;
    return bad;
}

/* Runs fn in nranks processes. Returns how many failed. */
static inline int run_ranks(int nranks, int timeout_ms, rank_fn *fn, void *arg)
{
    int fd = memfd_create("test-comm", MFD_CLOEXEC), bad;
    pid_t pids[COMM_MAX_RANKS];

    start_ranks(fd, nranks, timeout_ms, fn, arg, pids);
    bad = wait_ranks(pids, nranks);
    close(fd);
    return bad;
}

/* Memory that parent and children share, zeroed. */
static inline void *shared_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}
