/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/emu/nccl_ranks.h - ranks with two queues of a GPU and a link
 * each: threads over the emulated NCCL; or, where the environment's DETD_TEST_CUDA names a libdetd-cuda.so, processes
 * that share a real GPU over the real NCCL, which has to be 2.30 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "tests/device/plugin.h"
#include "tests/stand/emu/emu.h"
#include "tests/stand/emu/nccl.h"
#include "tests/unit/worker/comm/ranks.h"
#include "worker/core/device.h"

enum { SECONDS_20 = 20000, ID_TEXT = 1024, MOST_RANKS = 8 };

struct rank {
    int rank, nranks, fd, timeout_ms;
    const char *id;
    void (*fn)(struct rank *r);
    bool joins;      /* false: fn opens its own communicators */
    atomic_int *arg; /* in memory that the parent sees too */
    struct comm *host, *link;
    struct device *sync, *grad;
};

static inline struct device *device_open(void)
{
    const struct device_ops *real = cuda_plugin(), *ops = real ? real : cuda_backend_emu();
    struct device_options opt = { .precision = PRECISION_FP32 };
    struct device *dev = NULL;
    struct err err;

    NEED_OK(ops->open(0, &opt, &dev, &err));
    return dev;
}

static inline int link_open(struct rank *r, const char *id, struct err *err)
{
    struct comm_options opt = { .fd = -1, .rank = r->rank, .nranks = r->nranks, .timeout_ms = r->timeout_ms, .host = r->host };

    return r->sync->ops->link_open(r->sync, r->grad, &opt, id, &r->link, err);
}

/* With its devices open. Closes the link and them. */
static inline void rank_work(struct rank *r)
{
    struct err err;

    if (r->joins)
        NEED_OK(link_open(r, r->id, &err));
    r->fn(r);
    comm_close(r->link);
    r->sync->ops->close(r->sync);
    r->grad->ops->close(r->grad);
}

static inline void *rank_run(void *arg)
{
    struct rank *r = arg;

    r->host = rank_open(r->fd, r->rank, r->nranks, r->timeout_ms);
    r->sync = device_open();
    r->grad = device_open();
    rank_work(r);
    comm_close(r->host);
    return NULL;
}

static inline void nothing_is_left(void)
{
    struct nccl_seen seen;

    nccl_look(&seen);
    NEED(seen.comms == 0 && seen.memory == 0 && seen.windows == 0);
    NEED(seen.races == 0);
}

/* The body of a process that is a rank. arg: its struct rank, without its number, devices and id. */
static inline void rank_of_process(struct comm *host, void *arg)
{
    struct rank r = *(struct rank *)arg;
    char id[ID_TEXT] = "";
    struct err err;

    r.host = host;
    r.rank = comm_rank(host);
    r.sync = device_open();
    r.grad = device_open();
    if (r.rank == 0)
        NEED_OK(r.sync->ops->link_id(id, sizeof(id), &err));
    NEED_OK(comm_broadcast(host, COMM_SYNC, id, sizeof(id), &err));
    r.id = id;
    rank_work(&r);
}

/* In a process of its own: threads as ranks, and NEED() may end it. Returns 0 where all went well. */
static inline int run_threads(int nranks, int timeout_ms, bool joins, void (*fn)(struct rank *r), atomic_int *arg)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        static struct rank rank[MOST_RANKS];
        int fd = memfd_create("test-nccl", MFD_CLOEXEC);
        pthread_t thread[MOST_RANKS];
        char id[ID_TEXT];
        struct err err;

        NEED_OK(cuda_backend_emu()->link_id(id, sizeof(id), &err));
        for (int r = 0; r < nranks; r++) {
            rank[r] = (struct rank){ r, nranks, fd, timeout_ms, id, fn, joins, arg, NULL, NULL, NULL, NULL };
            NEED(pthread_create(&thread[r], NULL, rank_run, &rank[r]) == 0);
        }
        for (int r = 0; r < nranks; r++)
            NEED(pthread_join(thread[r], NULL) == 0);
        nothing_is_left();
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid ? status : -1;
}

/* Ranks that have joined, over whichever NCCL is asked for. Returns 0 where all went well. */
static inline int run_joined(int nranks, int timeout_ms, void (*fn)(struct rank *r), atomic_int *arg)
{
    struct rank r = { .nranks = nranks, .timeout_ms = timeout_ms, .fn = fn, .joins = true, .arg = arg };

    return getenv("DETD_TEST_CUDA") ? run_ranks(nranks, timeout_ms, rank_of_process, &r) : run_threads(nranks, timeout_ms, true, fn, arg);
}
