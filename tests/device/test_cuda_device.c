/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_cuda_device.c - uses: proto cuda
 * The CUDA device's queues and memory, on an emulated GPU that delays and reorders all that it may: transfers, marks,
 * tables, the time of each allocation, and the errors when memory, the device or its context is gone. Run again for
 * every seed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/err.h"
#include "tests/stand/emu/emu.h"
#include "worker/core/device.h"
#include "worker/ops/families.h"

enum { SEEDS = 4, PIECE = 4 << 20, ILLEGAL_ADDRESS = 700 };

#define OK(call)                              \
    do {                                      \
        if ((call) < 0)                       \
            fail_msg("%s: %s", #call, e.msg); \
    } while (0)

static struct err e;

static struct device *open_device(enum precision precision)
{
    struct device_options opt = { .precision = precision };
    struct device *dev;

    OK(cuda_backend_emu()->open(0, &opt, &dev, &e));
    return dev;
}

static unsigned char *pattern(size_t bytes, unsigned seed)
{
    unsigned char *p = malloc(bytes);

    assert_non_null(p);
    for (size_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(((i + seed * 977) * 2654435761u >> 13) + (i >> 20) * 37); /* no two pieces alike */
    return p;
}

/* Sizes around a piece of the staging ring and around the whole ring; the host's bytes are overwritten as soon as
 * upload() returns. */
static void transfers(void **state)
{
    static const size_t sizes[] = { 0, 1, 255, 256, PIECE - 1, PIECE, PIECE + 1, 4 * (size_t)PIECE, 5 * (size_t)PIECE + 77 };

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct device *dev;

        emu_seed(seed);
        dev = open_device(PRECISION_FP32);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t n = sizes[i];
            unsigned char *host = pattern(n + 1, (unsigned)seed), *back = malloc(n + 1), *want = pattern(n + 1, (unsigned)seed);
            void *mem = dev->ops->alloc(dev, n);

            assert_non_null(back);
            assert_non_null(mem);
            assert_int_equal((uintptr_t)mem % 256, 0);
            OK(dev->ops->upload(dev, mem, host, n, &e));
            memset(host, 0xEE, n);
            back[n] = 0x5A;
            OK(dev->ops->download(dev, back, mem, n, &e));
            assert_memory_equal(back, want, n);
            assert_int_equal(back[n], 0x5A);
            dev->ops->free(dev, mem);
            free(host);
            free(back);
            free(want);
        }
        dev->ops->close(dev);
    }
}

/* Many small pieces: the ring wraps around often, and in the steady state no memory is allocated. */
static void small_transfers(void **state)
{
    enum { COUNT = 300, BYTES = 100000 };

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        unsigned char *back = malloc(BYTES), *mem;
        struct device *dev;
        uint64_t before = 0;

        emu_seed(seed);
        dev = open_device(PRECISION_FP32);
        mem = dev->ops->alloc(dev, (size_t)COUNT * BYTES);
        assert_non_null(back);
        assert_non_null(mem);
        for (int i = 0; i < COUNT; i++) {
            unsigned char *host = pattern(BYTES, (unsigned)i);

            OK(dev->ops->upload(dev, mem + (size_t)i * BYTES, host, BYTES, &e));
            memset(host, 0, BYTES);
            free(host);
            if (i == 0)
                before = emu_allocations();
        }
        OK(dev->ops->download(dev, back, mem, 8, &e));
        assert_int_equal(emu_allocations(), before);
        for (int i = 0; i < COUNT; i++) {
            unsigned char *want = pattern(BYTES, (unsigned)i);

            OK(dev->ops->download(dev, back, mem + (size_t)i * BYTES, BYTES, &e));
            assert_memory_equal(back, want, BYTES);
            free(want);
        }
        free(back);
        dev->ops->free(dev, mem);
        dev->ops->close(dev);
    }
}

/* After a mark, another queue reads the data that one queue wrote. Then the first may write again only after a mark of
 * the second. */
static void marks_order_queues(void **state)
{
    enum { BYTES = 40000, ROUNDS = 20 };

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct device *a, *b;
        struct device_mark *written, *read;
        unsigned char *from, *to, *pinned;

        emu_seed(seed);
        a = open_device(PRECISION_FP32);
        b = open_device(PRECISION_FP32);
        written = a->ops->mark_new(a);
        read = b->ops->mark_new(b);
        from = a->ops->alloc(a, BYTES);
        to = b->ops->alloc(b, BYTES);
        pinned = b->ops->host_alloc(b, (size_t)ROUNDS * BYTES);
        assert_true(written && read && from && to && pinned);
        for (size_t i = 0; i < (size_t)ROUNDS * BYTES; i++)
            assert_int_equal(pinned[i], 0);
        OK(b->ops->reach(b, read, &e)); /* never made: passed */
        for (int i = 0; i < ROUNDS; i++) {
            unsigned char *host = pattern(BYTES, (unsigned)i);

            OK(a->ops->wait(a, read, &e));
            OK(a->ops->upload(a, from, host, BYTES, &e));
            OK(a->ops->mark(a, written, &e));
            OK(b->ops->wait(b, written, &e));
            OK(b->ops->copy_async(b, to, from, BYTES, &e));
            OK(b->ops->mark(b, read, &e));
            OK(b->ops->copy_async(b, pinned + (size_t)i * BYTES, to, BYTES, &e));
            free(host);
        }
        OK(b->ops->mark(b, read, &e));
        OK(b->ops->reach(b, read, &e));
        for (int i = 0; i < ROUNDS; i++) {
            unsigned char *want = pattern(BYTES, (unsigned)i);

            assert_memory_equal(pinned + (size_t)i * BYTES, want, BYTES);
            free(want);
        }
        a->ops->mark_free(a, written);
        a->ops->mark_free(a, NULL);
        b->ops->mark_free(b, read);
        b->ops->host_free(b, pinned);
        b->ops->host_free(b, NULL);
        a->ops->free(b, from); /* memory of one device belongs to all */
        b->ops->free(a, to);
        b->ops->free(b, NULL);
        a->ops->close(a);
        b->ops->close(b);
    }
}

/* New memory is zero for every queue at once, even if it was used before. */
static void memory_is_zeroed(void **state)
{
    enum { BYTES = 70000 };
    static unsigned char back[BYTES], zero[BYTES];

    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct device *a, *b;
        unsigned char *mem;

        emu_seed(seed);
        a = open_device(PRECISION_FP32);
        b = open_device(PRECISION_FP32);
        for (int i = 0; i < 5; i++) {
            mem = a->ops->alloc(a, BYTES);
            assert_non_null(mem);
            OK(b->ops->download(b, back, mem, BYTES, &e));
            assert_memory_equal(back, zero, BYTES);
            memset(back, 0xC3, BYTES);
            OK(b->ops->upload(b, mem, back, BYTES, &e));
            OK(b->ops->zero(b, mem + 1000, 10, &e));
            OK(b->ops->download(b, back, mem, BYTES, &e));
            assert_int_equal(back[999], 0xC3);
            assert_memory_equal(back + 1000, zero, 10);
            assert_int_equal(back[1010], 0xC3);
            a->ops->free(a, mem); /* with b's work behind it */
        }
        a->ops->close(a);
        b->ops->close(b);
    }
}

/* Tables of kernels that are all still queued: each kernel reads its own table, also when the ring of tables has
 * wrapped around. */
static void tables(void **state)
{
    enum { SHARDS = 4096, ROUNDS = 100, C = 3 };
    struct device *dev;
    double *rows, *sums, back[C], *x = malloc((size_t)2 * SHARDS * C * sizeof *x);
    const double **row = malloc(SHARDS * sizeof *row);

    (void)state;
    emu_seed(3);
    dev = open_device(PRECISION_FP32);
    rows = dev->ops->alloc(dev, (size_t)2 * SHARDS * C * sizeof *rows);
    sums = dev->ops->alloc(dev, (size_t)ROUNDS * C * sizeof *sums);
    assert_true(rows && sums && x && row);
    for (int v = 0; v < 2 * SHARDS; v++) {
        x[v * C] = v;
        x[v * C + 1] = 1;
        x[v * C + 2] = v % 2;
    }
    OK(dev->ops->upload(dev, rows, x, (size_t)2 * SHARDS * C * sizeof *x, &e));
    for (int i = 0; i < ROUNDS; i++) {
        for (int v = 0; v < SHARDS; v++)
            row[v] = rows + (size_t)((v + i) % (2 * SHARDS)) * C;
        OK(dev->on->reduce->tree_sums(dev, sums + (size_t)i * C, row, SHARDS, C, &e));
    }
    for (int i = 0; i < ROUNDS; i++) {
        double first = 0;

        for (int v = 0; v < SHARDS; v++)
            first += (v + i) % (2 * SHARDS);
        OK(dev->ops->download(dev, back, sums + (size_t)i * C, sizeof back, &e));
        assert_true(back[0] == first && back[1] == SHARDS && back[2] == SHARDS / 2);
    }
    dev->ops->free(dev, rows);
    dev->ops->free(dev, sums);
    dev->ops->close(dev);
    free(x);
    free(row);
}

static void out_of_memory(void **state)
{
    enum { SQUARES = 2000 }; /* more than clip adds up at once */
    struct device *dev;
    void *half;
    double *mem;

    (void)state;
    emu_seed(1);
    dev = open_device(PRECISION_FP32);
    emu_memory_limit((size_t)64 << 20);
    half = dev->ops->alloc(dev, (size_t)60 << 20);
    assert_non_null(half);
    assert_null(dev->ops->alloc(dev, (size_t)8 << 20));
    assert_null(dev->ops->alloc(dev, SIZE_MAX / 2));
    mem = dev->ops->alloc(dev, SQUARES * sizeof *mem + sizeof(struct clip)); /* the remaining memory can still be allocated */
    assert_non_null(mem);
    dev->ops->free(dev, half);
    half = dev->ops->alloc(dev, ((size_t)63 << 20) - 4096);
    assert_non_null(half);
    {
        /* an op that needs working memory, when all is in use */
        struct clip *clip = (struct clip *)(mem + SQUARES);
        int rc = dev->on->optim->clip(dev, clip, mem, NULL, SQUARES, 1, 0, &e);

        assert_int_equal(rc, -ENOMEM);
        assert_non_null(strstr(e.msg, "clip: out of GPU memory: 2 MiB more are needed"));
        assert_non_null(strstr(e.msg, "of 64 MiB are free"));
        dev->ops->free(dev, half);
        OK(dev->on->optim->clip(dev, clip, mem, NULL, SQUARES, 1, 0, &e));
    }
    dev->ops->free(dev, mem);
    dev->ops->close(dev);
    emu_memory_limit((size_t)16 << 30);
    assert_int_equal(emu_memory_used(), 0);
}

/* Each allocation of an open queue and of its first transfer fails once: the result is an error, and no memory is
 * lost. */
static void every_allocation_fails(void **state)
{
    size_t used = emu_memory_used();

    (void)state;
    emu_seed(1);
    for (int n = 1; n < 20; n++) {
        struct device *dev = open_device(PRECISION_FP32);
        char *mem, *pinned = NULL, byte = 1;
        bool failed;

        emu_fail_malloc_after(n);
        mem = dev->ops->alloc(dev, 100);
        failed = !mem;
        failed |= !mem || dev->ops->upload(dev, mem, &byte, 1, &e) < 0;
        failed |= !mem || dev->ops->download(dev, &byte, mem, 1, &e) < 0;
        pinned = dev->ops->host_alloc(dev, 10);
        failed |= !pinned;
        emu_fail_malloc_after(0);
        dev->ops->host_free(dev, pinned);
        dev->ops->free(dev, mem);
        dev->ops->close(dev);
        assert_int_equal(emu_memory_used(), used);
        if (!failed) {
            assert_true(n > 3);
            return;
        }
    }
    fail_msg("allocations do not end");
}

static void no_device(void **state)
{
    struct device *dev = NULL;

    (void)state;
    emu_no_device(true);
    assert_int_equal(cuda_backend_emu()->available(&e), ERR_UNSUPPORTED);
    assert_true(strstr(e.msg, "NVIDIA driver") || strstr(e.msg, "no GPU"));
    assert_int_equal(cuda_backend_emu()->open(0, NULL, &dev, &e), ERR_UNSUPPORTED);
    setenv("CUDA_VISIBLE_DEVICES", "GPU-none", 1);
    assert_int_equal(cuda_backend_emu()->available(&e), ERR_UNSUPPORTED);
    unsetenv("CUDA_VISIBLE_DEVICES");
    emu_no_device(false);
    OK(cuda_backend_emu()->available(&e));
    assert_int_equal(cuda_backend_emu()->open(1, NULL, &dev, &e), ERR_NOTFOUND);
    assert_null(dev);
}

static void a_lost_context_names_the_last_ops(void **state)
{
    struct device *dev;
    char byte = 1, *mem;

    (void)state;
    emu_seed(2);
    dev = open_device(PRECISION_FP32);
    mem = dev->ops->alloc(dev, 100);
    assert_non_null(mem);
    OK(dev->ops->sync(dev, &e));
    emu_fail_task_after(2, ILLEGAL_ADDRESS);
    OK(dev->ops->zero(dev, mem, 50, &e));
    OK(dev->ops->upload(dev, mem, &byte, 1, &e));
    assert_int_equal(dev->ops->sync(dev, &e), ERR_DEVICE);
    assert_non_null(strstr(e.msg, "the GPU's context is lost"));
    assert_non_null(strstr(e.msg, "zero, upload, sync"));
    assert_int_equal(dev->ops->zero(dev, mem, 50, &e), ERR_DEVICE);
    assert_int_equal(cuda_backend_emu()->available(&e), ERR_UNSUPPORTED); /* as a driver that has lost its GPU answers */
    assert_non_null(strstr(e.msg, "the NVIDIA driver gives no GPU: cudaErrorIllegalAddress ("));
    emu_fail_task_after(0, 0);
    emu_revive();
    dev->ops->free(dev, mem);
    dev->ops->close(dev);
}

static void what_it_says_of_itself(void **state)
{
    struct device *dev = open_device(PRECISION_BF16), *other = open_device(PRECISION_TF32);
    struct device_info info;

    (void)state;
    assert_int_equal(dev->dtype, DTYPE_BF16);
    assert_int_equal(other->dtype, DTYPE_F32);
    assert_false(dev->host_memory || dev->pending || dev->one_dest);
    dev->ops->set_tier(dev, TIER_RERUN);
    assert_true(dev->one_dest);
    dev->ops->set_tier(dev, TIER_WORLD);
    assert_false(dev->one_dest);
    dev->ops->info(dev, &info);
    assert_int_equal(strncmp(info.uuid, "GPU-", 4), 0);
    assert_int_equal(strlen(info.uuid), 40);
    assert_true(info.name[0] && info.memory_bytes > 0 && info.nversions >= 3);
    assert_string_equal(info.version[0].name, "driver");
    dev->ops->close(dev);
    other->ops->close(other);
    cuda_backend_emu()->close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers),
        cmocka_unit_test(small_transfers),
        cmocka_unit_test(marks_order_queues),
        cmocka_unit_test(memory_is_zeroed),
        cmocka_unit_test(tables),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(every_allocation_fails),
        cmocka_unit_test(no_device),
        cmocka_unit_test(a_lost_context_names_the_last_ops),
        cmocka_unit_test(what_it_says_of_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
