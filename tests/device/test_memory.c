/* SPDX-License-Identifier: Apache-2.0 */ /* tests/device/test_memory.c - memory of one instance of a device is memory
 * of all of them. uses: proto worker/core cpu cuda */
#include "tests/device/devices.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

/* Below and above the size at which the CPU device allocates from the kernel. */
static const size_t sizes[] = { 1000, (4 << 20) - 1, 4 << 20, 9 << 20 };
enum { SIZES = sizeof sizes / sizeof *sizes, ROUNDS = 200 };

/* Device b reads and frees the memory that device a wrote. */
static void hand_over(struct device *a, struct device *b, size_t bytes)
{
    unsigned char out[64], in[64];
    unsigned char *mem = a->ops->alloc(a, bytes), *pinned = a->ops->host_alloc(a, bytes);
    struct err err;

    assert_true(mem && pinned);
    memset(in, 0x5A, sizeof in);
    assert_int_equal(a->ops->upload(a, mem + bytes - sizeof in, in, sizeof in, &err), 0);
    assert_int_equal(a->ops->sync(a, &err), 0);
    get(b, out, mem + bytes - sizeof in, sizeof out);
    assert_memory_equal(in, out, sizeof in);
    get(b, out, mem, sizeof out);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], 0);
    b->ops->free(b, mem);
    b->ops->host_free(b, pinned);
    if (a->host_memory && bytes >= 4 << 20) { /* the kernel has got it back */
        unsigned char resident;

        assert_int_equal(mincore(mem, 1, &resident), -1);
        assert_int_equal(errno, ENOMEM);
    }
}

static void any_instance(void **state)
{
    (void)state;
    for (int a = 0; a < devices.n; a++)
        for (int b = 0; b < devices.n; b++)
            for (int i = 0; i < SIZES && devices.dev[a]->ops == devices.dev[b]->ops; i++)
                hand_over(devices.dev[a], devices.dev[b], sizes[i]);
}

/* Each thread has an instance of its own, takes memory, and gives back the memory of the other. */
struct side {
    struct device *dev;
    pthread_barrier_t *barrier;
    struct side *other;
    void *mine;
};

static void *swap(void *arg)
{
    struct side *s = arg;

    for (int i = 0; i < ROUNDS; i++) {
        s->mine = s->dev->ops->alloc(s->dev, sizes[i % SIZES]);
        pthread_barrier_wait(s->barrier);
        s->dev->ops->free(s->dev, s->other->mine);
        pthread_barrier_wait(s->barrier);
    }
    return NULL;
}

static void at_the_same_time(void **state)
{
    pthread_barrier_t barrier;
    struct side side[2];
    pthread_t id;

    (void)state;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    for (int d = 0; d + 1 < devices.n; d++) {
        if (devices.dev[d]->ops != devices.dev[d + 1]->ops || !devices.dev[d]->host_memory)
            continue;
        for (int i = 0; i < 2; i++)
            side[i] = (struct side){ devices.dev[d + i], &barrier, &side[1 - i], NULL };
        assert_int_equal(pthread_create(&id, NULL, swap, &side[0]), 0);
        swap(&side[1]);
        assert_int_equal(pthread_join(id, NULL), 0);
    }
    pthread_barrier_destroy(&barrier);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_instance), cmocka_unit_test(at_the_same_time) };

    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
