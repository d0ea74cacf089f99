/* tests/emu/nccl_ranks.h - ranks as threads, each with two queues of the emulated GPU and a link over the emulated NCCL. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>

#include "tests/emu/emu.h"
#include "tests/emu/nccl.h"
#include "tests/unit/ranks.h"
#include "worker/core/device.h"

enum { SECONDS_20 = 20000, ID_TEXT = 1024, MOST_RANKS = 8 };

struct rank {
    int rank, nranks, fd, timeout_ms;
    const char *id;
    void (*fn)(struct rank *r);
    bool joins;      /* false: fn opens what it wants itself */
    atomic_int *arg; /* in memory that the parent sees too */
    struct comm *host, *link;
    struct device *sync, *grad;
};

static inline struct device *device_open(void)
{
    const struct device_ops *ops = cuda_backend_emu();
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

static inline void *rank_run(void *arg)
{
    struct rank *r = arg;
    struct err err;

    r->host = rank_open(r->fd, r->rank, r->nranks, r->timeout_ms);
    r->sync = device_open();
    r->grad = device_open();
    if (r->joins)
        NEED_OK(link_open(r, r->id, &err));
    r->fn(r);
    comm_close(r->link);
    r->sync->ops->close(r->sync);
    r->grad->ops->close(r->grad);
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
