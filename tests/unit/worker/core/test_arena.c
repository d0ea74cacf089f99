/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_arena.c
 * uses: proto worker/backend trainer cpu
 * The step arena: places repeat, neighbours join, no memory is given out twice, and little more is held than is
 * used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/core/philox.h"
#include "worker/backend/devices.h"
#include "worker/models/yolo/presets.h"

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

/* ---- the memory of a network, requested in the order of the tape (worker/core/tape.c) ---- */

enum { MAX_NODES = 256, SIZES = 10, STEPS = 200, IMAGE_CHUNK = 4 << 20 /* 256 MiB of 64 */ };

struct node {
    size_t bytes, channel; /* of its output, and of a vector of its channels; 0 bytes: another name for an earlier one */
    int in[DARKNET_MAX_SOURCES], nin;
    bool head;
    void *out, *grad;
};

struct chain {
    struct node node[MAX_NODES];
    int n;
};

/* yolov3 at size x size pixels, one image, numbers of four bytes. */
static void chain_make(struct chain *c, struct darknet_net *net, int size)
{
    struct err err;

    assert_int_equal(darknet_net_set_size(net, size, size, &err), 0);
    assert_true(net->nlayers <= MAX_NODES);
    memset(c, 0, sizeof *c);
    c->n = net->nlayers;
    for (int i = 0; i < c->n; i++) {
        const struct darknet_layer *l = &net->layers[i];
        struct node *n = &c->node[i];
        bool alias = l->type == DARKNET_YOLO || (l->type == DARKNET_ROUTE && l->nsources == 1);

        n->bytes = alias ? 0 : sizeof(float) * (size_t)l->out.c * (size_t)l->out.h * (size_t)l->out.w;
        n->head = l->type == DARKNET_YOLO;
        n->channel = l->bn ? sizeof(float) * (size_t)l->out.c : 0;
        if (l->type != DARKNET_ROUTE && i > 0)
            n->in[n->nin++] = i - 1;
        for (int k = 0; k < l->nsources; k++)
            n->in[n->nin++] = l->source[k];
    }
}

/* The node that holds output i. */
static struct node *owner(struct chain *c, int i)
{
    while (c->node[i].bytes == 0)
        i = c->node[i].in[0];
    return &c->node[i];
}

static void *take(struct arena *a, size_t bytes)
{
    void *p = arena_alloc(a, bytes);

    assert_non_null(p);
    return p;
}

/* A step: all outputs, then gradients from the heads on. A gradient is freed when it is handed on. */
static void train(struct arena *a, struct chain *c)
{
    for (int i = 0; i < c->n; i++) {
        struct node *n = &c->node[i];

        n->grad = NULL;
        n->out = n->bytes > 0 ? take(a, n->bytes) : NULL;
        for (int k = 0; k < 4 && n->channel > 0; k++)
            take(a, n->channel);
    }
    for (int i = 0; i < c->n; i++)
        if (c->node[i].head)
            owner(c, i)->grad = take(a, owner(c, i)->bytes);
    for (int i = c->n - 1; i >= 0; i--) {
        struct node *n = &c->node[i];

        if (n->bytes == 0)
            continue;
        if (n->channel > 0)
            take(a, 4 * n->channel);
        for (int k = 0; k < n->nin; k++) {
            struct node *in = owner(c, n->in[k]);

            if (!in->grad)
                in->grad = take(a, in->bytes);
        }
        arena_release(a, n->grad);
        arena_release(a, n->out);
    }
}

/* Ten sizes in any order: little more than the largest step's peak is held. Once all sizes were seen, no memory is
 * taken from the device. */
static void sizes_vary(void **state)
{
    const struct philox_key key = { .seed = 4 };
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, IMAGE_CHUNK);
    struct chain *chain = calloc(SIZES, sizeof *chain);
    struct darknet_net *net;
    size_t held = 0;
    void *first = NULL;
    struct err err;

    (void)state;
    assert_non_null(chain);
    assert_int_equal(preset_net("yolov3", &net, &err), 0);
    for (int i = 0; i < SIZES; i++)
        chain_make(&chain[i], net, 320 + 32 * i);
    for (int step = 0; step < STEPS; step++) {
        struct chain *c = &chain[philox_below(&key, (uint64_t)step, SIZES)];

        arena_reset(a);
        assert_true(arena_held(a) <= arena_peak(a) + arena_peak(a) / 4);
        train(a, c);
        if (step < STEPS / 4) {
            held = arena_held(a);
            first = c->node[0].out;
        }
        assert_int_equal(arena_held(a), held);
        assert_ptr_equal(c->node[0].out, first);
    }
    assert_true(held <= arena_peak(a) + arena_peak(a) / 4);
    darknet_net_free(net);
    free(chain);
    arena_free(a);
    dev->ops->close(dev);
}

/* Every new size of step runs in pieces first, then in a single chunk; a larger step makes a larger chunk. */
static void one_chunk_after_several(void **state)
{
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, CHUNK);

    (void)state;
    for (int step = 0; step < 6; step++) {
        int blocks = step < 3 ? 4 : 8;
        size_t want = (size_t)blocks * CHUNK;
        char *p[8];

        arena_reset(a);
        for (int i = 0; i < blocks; i++)
            p[i] = take(a, CHUNK);
        for (int i = 1; i < blocks && step % 3 > 0; i++)
            assert_ptr_equal(p[i], p[0] + (size_t)i * CHUNK);
        assert_int_equal(arena_peak(a), want);
        assert_true(arena_held(a) >= want && arena_held(a) <= want + want / 4);
    }
    arena_free(a);
    dev->ops->close(dev);
}

static size_t address_space(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    size_t pages = 0;

    assert_true(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* A device may refuse a large chunk though it gave several small ones. Then steps continue in pieces, and the large
 * chunk is requested only once. */
static void no_large_chunk(void **state)
{
    enum { PIECE = 8 << 20, PIECES = 6 };
    struct device *dev = open_device();
    struct arena *a = arena_new(dev, PIECE);
    struct rlimit before, tight;
    void *first;

    (void)state;
    for (int i = 0; i < PIECES; i++)
        take(a, PIECE);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = address_space() - (PIECES - 4) * PIECE; /* room for nearly four once they are given back */
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    arena_reset(a);
    assert_int_equal(arena_held(a), 0);
    first = arena_alloc(a, PIECE);
    assert_true(first && arena_alloc(a, PIECE) && !arena_alloc(a, PIECES * PIECE));
    arena_reset(a);
    assert_int_equal(arena_held(a), 2 * PIECE);
    assert_ptr_equal(arena_alloc(a, PIECE), first);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    arena_free(a);
    dev->ops->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(places_repeat),           cmocka_unit_test(neighbours_join),
                                        cmocka_unit_test(blocks_do_not_overlap),   cmocka_unit_test(sizes_vary),
                                        cmocka_unit_test(one_chunk_after_several), cmocka_unit_test(no_large_chunk) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
