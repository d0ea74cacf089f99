/* tests/unit/test_arena.c - the step arena: places repeat, neighbours join, nothing is taken twice.
 * uses: proto worker worker/train worker/models worker/layers worker/data worker/eval worker/comm worker/core cpu */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/devices.h"

enum { CHUNK = 1 << 20, LIVE = 64, ROUNDS = 4000 };

static struct device *open_device(void)
{
    const struct device_options opt = { .threads = 1, .isa = "generic" };
    const struct device_ops *ops;
    struct device *dev;
    struct err err;

    assert_int_equal(device_backend("cpu", "generic", &ops, &err), 0);
    assert_int_equal(ops->open(0, &opt, &dev, &err), 0);
    return dev;
}

static void places_repeat(void **state)
{
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, CHUNK);
    void *first[3];
    size_t held = 0;

    (void)state;
    for (int step = 0; step < 3; step++) {
        void *p[3] = { arena_alloc(a, 1000), arena_alloc(a, 700000), arena_alloc(a, 5000) }, *q;

        arena_release(a, p[0]);
        q = arena_alloc(a, 64);
        assert_ptr_equal(q, p[0]);
        if (step == 0)
            memcpy(first, p, sizeof p);
        assert_memory_equal(first, p, sizeof p);
        arena_reset(a);
        held = step == 0 ? arena_held(a) : held;
        assert_int_equal(arena_held(a), held);
    }
    arena_free(a);
    dev->ops->close(dev);
}

static void neighbours_join(void **state)
{
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, CHUNK);
    void *p[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        p[i] = arena_alloc(a, CHUNK / 4);
    arena_release(a, p[1]);
    arena_release(a, p[3]);
    arena_release(a, p[2]);
    assert_ptr_equal(arena_alloc(a, CHUNK / 4 * 3), p[1]);
    assert_int_equal(arena_held(a), CHUNK);
    assert_int_equal(arena_peak(a), CHUNK);
    arena_free(a);
    dev->ops->close(dev);
}

/* Random sizes and orders: every live block keeps its own pattern. */
static void blocks_do_not_overlap(void **state)
{
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, CHUNK);
    struct {
        unsigned char *at;
        size_t bytes;
    } live[LIVE] = { 0 };

    (void)state;
    srand(7);
    for (int i = 0; i < ROUNDS; i++) {
        int k = rand() % LIVE;

        for (size_t b = 0; live[k].at && b < live[k].bytes; b++)
            assert_int_equal(live[k].at[b], k);
        arena_release(a, live[k].at);
        live[k].at = NULL;
        if (rand() % 3 == 0)
            continue;
        live[k].bytes = 1 + (size_t)rand() % 40000;
        live[k].at = arena_alloc(a, live[k].bytes);
        assert_int_equal((uintptr_t)live[k].at % 64, 0);
        memset(live[k].at, k, live[k].bytes);
    }
    arena_free(a);
    dev->ops->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(places_repeat), cmocka_unit_test(neighbours_join),
                                        cmocka_unit_test(blocks_do_not_overlap) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
