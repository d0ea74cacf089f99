/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/comm/test_staged.c
 * uses: proto worker/comm worker/core cpu
 * The staged transport with real processes: the same operations of ranks give the same bytes over plain shared memory
 * and over device memory with twins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/worker/comm/comm_script.h"
#include "worker/comm/staged.h"

const struct device_ops *cpu_backend_generic(void);

enum { STEPS = 12, SECONDS_20 = 20000 };

static struct device *device_open(void)
{
    const struct device_ops *ops = cpu_backend_generic();
    struct device_options opt = { .threads = 1 };
    struct device *dev = NULL;
    struct err err;

    NEED_OK(ops->open(0, &opt, &dev, &err));
    return dev;
}

static void same_ranks(struct comm *shm, void *arg)
{
    struct device *sync = device_open(), *grad = device_open();
    struct comm *staged;
    struct err err;
    uint64_t plain;

    (void)arg;
    plain = work(shm, sync, grad, STEPS);
    NEED_OK(comm_open_staged(shm, sync, grad, &staged, &err));
    NEED(comm_rank(staged) == comm_rank(shm) && comm_ranks(staged) == comm_ranks(shm));
    NEED(work(staged, sync, grad, STEPS) == plain);
    NEED_OK(comm_barrier(shm, COMM_SYNC, &err)); /* the host comm continues by itself */
    comm_close(staged);
    sync->ops->close(sync);
    grad->ops->close(grad);
}

static void test_same_as_shared_memory(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++)
        assert_int_equal(run_ranks(n, SECONDS_20, same_ranks, NULL), 0);
}

/* A single rank exchanges with itself in memory of any kind, and its chunk is not moved. */
static void alone(struct comm *shm, void *arg)
{
    static const int planes[] = { 2 };
    static const size_t cut[] = { 64, 256 };
    struct device *dev = device_open();
    char *mem = dev->ops->alloc(dev, 2048);
    struct comm_planes x = { mem, 1024, planes, cut };
    const void *views[2];
    struct comm *c;
    struct err err;

    (void)arg;
    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    NEED_OK(comm_alltoall(c, COMM_SYNC, &x, views, &err));
    NEED(views[0] == mem + 64 && views[1] == mem + 1024 + 64);
    comm_close(c);
    dev->ops->free(dev, mem);
    dev->ops->close(dev);
}

static void test_alone(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, SECONDS_20, alone, NULL), 0);
}

/* Memory that is not the comm's ends the job for all. */
static void foreign_memory(struct comm *shm, void *arg)
{
    bool gather = *(bool *)arg;
    struct device *dev = device_open();
    static const int planes[] = { 1, 1 };
    static const size_t cut[] = { 0, 64, 128 };
    struct comm_planes x = { NULL, 1024, planes, cut };
    const void *views[2];
    struct comm *c;
    struct err err;
    char *mem, other[128];
    int rc;

    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    mem = gather ? comm_alloc_shared(c, 1024, &err) : comm_alloc(c, 1024, &err);
    NEED(mem);
    mem = comm_rank(c) == 1 ? other : mem;
    x.mem = mem;
    rc = gather ? comm_allgather(c, COMM_SYNC, mem, cut, &err) : comm_alltoall(c, COMM_SYNC, &x, views, &err);
    NEED(rc == (comm_rank(c) == 1 ? ERR_INPUT : ERR_ABORTED));
    NEED(strstr(err.msg, comm_rank(c) == 0 ? "rank 1" : gather ? "comm_alloc_shared" : "peers cannot read"));
    NEED(comm_aborted(c) && comm_aborted(shm));
    NEED(comm_barrier(c, COMM_SYNC, &err) == ERR_ABORTED);
    comm_close(c);
    dev->ops->close(dev);
}

static void test_foreign_memory(void **state)
{
    bool gather = false;

    (void)state;
    assert_int_equal(run_ranks(2, SECONDS_20, foreign_memory, &gather), 0);
    gather = true;
    assert_int_equal(run_ranks(2, SECONDS_20, foreign_memory, &gather), 0);
}

/* A rank that dies, and a rank that leaves, end the others' wait. */
static void missing_peer(struct comm *shm, void *arg)
{
    bool leaves = *(bool *)arg;
    static const size_t cut[] = { 0, 64, 128, 192 };
    struct device *dev = device_open();
    struct comm *c;
    struct err err;
    char *mem;
    int rc;

    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    mem = comm_alloc_shared(c, 1024, &err);
    NEED(mem);
    NEED_OK(comm_allgather(c, COMM_GRAD, mem, cut, &err));
    if (comm_rank(c) == 2) {
        if (leaves)
            comm_abort(c);
        _exit(0);
    }
    rc = comm_allgather(c, COMM_GRAD, mem, cut, &err);
    NEED(rc == ERR_ABORTED || (!leaves && rc == ERR_TIMEOUT));
    NEED(leaves || rc == ERR_ABORTED || strstr(err.msg, "rank 2 did not enter"));
    comm_close(c);
    dev->ops->close(dev);
}

static void test_missing_peer(void **state)
{
    bool leaves = true;

    (void)state;
    assert_int_equal(run_ranks(3, SECONDS_20, missing_peer, &leaves), 0);
    leaves = false;
    assert_int_equal(run_ranks(3, 300, missing_peer, &leaves), 0);
}

/* More allocations than there are regions, and more than the device has. */
static void no_memory(struct comm *shm, void *arg)
{
    struct device *dev = device_open();
    struct comm *c;
    struct err err = { 0 };
    int n = 0;

    (void)arg;
    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    NEED(!comm_alloc(c, (size_t)1 << 45, &err) && err.code < 0 && err.msg[0]);
    while (n < 1000 && comm_alloc_shared(c, 64, &err))
        n++;
    NEED(n > 10 && n < 1000 && err.code == ERR_STATE && strstr(err.msg, "allocations"));
    comm_close(c);
    dev->ops->close(dev);
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, SECONDS_20, no_memory, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_shared_memory), cmocka_unit_test(test_alone),     cmocka_unit_test(test_foreign_memory),
        cmocka_unit_test(test_missing_peer),          cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
