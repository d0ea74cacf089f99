/* SPDX-License-Identifier: Apache-2.0 */ /* The staged transport between processes that each have an emulated GPU, as
 * ranks that share a real one: host code that touches device memory dies.
 * uses: proto worker/comm worker/core cuda */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/stand/emu/emu.h"
#include "tests/unit/worker/comm/comm_script.h"
#include "worker/comm/staged.h"

enum { SECONDS_20 = 20000 };

static struct device *device_open(void)
{
    const struct device_ops *ops = cuda_backend_emu();
    struct device_options opt = { .precision = PRECISION_FP32 };
    struct device *dev = NULL;
    struct err err;

    NEED_OK(ops->open(0, &opt, &dev, &err));
    return dev;
}

static void on_gpu(struct comm *shm, void *arg)
{
    struct device *sync = device_open(), *grad = device_open();
    struct comm *c;
    struct err err;

    (void)arg;
    emu_seed((uint64_t)comm_rank(shm) + 1);
    NEED_OK(comm_open_staged(shm, sync, grad, &c, &err));
    work(c, sync, grad, 4);
    comm_close(c);
    sync->ops->close(sync);
    grad->ops->close(grad);
    NEED(emu_memory_used() == 0);
}

static void test_on_gpu(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++)
        assert_int_equal(run_ranks(n, SECONDS_20, on_gpu, NULL), 0);
}

/* The device has no memory for the exchanged data, then no memory for the stage: the other ranks get an error. */
static void no_memory(struct comm *shm, void *arg)
{
    static const int planes[] = { 1, 1 };
    static const size_t cut[] = { 0, 64, 128 };
    struct device *dev = device_open();
    struct comm_planes x = { NULL, 1024, planes, cut };
    const void *views[2];
    struct comm *c;
    struct err err;
    char byte;
    int rc;

    (void)arg;
    NEED_OK(comm_open_staged(shm, dev, dev, &c, &err));
    emu_fail_malloc_after(1);
    NEED(!comm_alloc(c, 1024, &err) && err.code == ERR_DEVICE && strstr(err.msg, "1024 bytes"));
    x.mem = comm_alloc(c, 1024, &err);
    NEED(x.mem);
    NEED_OK(dev->ops->download(dev, &byte, x.mem, 1, &err)); /* takes the pinned memory */
    emu_fail_malloc_after(comm_rank(c) == 1 ? 1 : 0);
    rc = comm_alltoall(c, COMM_GRAD, &x, views, &err);
    NEED(comm_rank(c) == 1 ? rc == ERR_DEVICE && strstr(err.msg, "256 bytes") : rc == 0);
    NEED(comm_rank(c) == 0 || comm_aborted(shm));
    NEED(comm_barrier(c, COMM_GRAD, &err) == ERR_ABORTED);
    comm_close(c);
    dev->ops->close(dev);
}

static void test_no_memory(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, SECONDS_20, no_memory, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_on_gpu), cmocka_unit_test(test_no_memory) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
