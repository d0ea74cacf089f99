/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/worker/core/test_stress.c
 * uses: proto worker/backend trainer cpu
 * The effects of a run under stress. It reveals a consumer that depends on unwritten memory, on which picture is first,
 * or on which rank is first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "proto/err.h"
#include "worker/backend/devices.h"
#include "worker/core/arena.h"
#include "worker/core/device.h"
#include "worker/core/stress.h"
#include "worker/data/loader.h"
#include "worker/data/sample/task.h"

enum { SEEDS = 24 };

/* ---- order ---- */

static void check_permutation(const int *v, int n)
{
    for (int want = 0; want < n; want++) {
        int found = 0;

        for (int i = 0; i < n; i++)
            found += v[i] == want;
        assert_int_equal(found, 1);
    }
}

static void orders_are_drawn_by_seed_and_round(void **state)
{
    const struct stress a = { 1, 0, 2 }, same = { 1, 1, 2 }, b = { 2, 0, 2 };
    int first[40], other[40];

    (void)state;
    stress_order(&a, 5, 40, first);
    check_permutation(first, 40);
    stress_order(&same, 5, 40, other);
    assert_memory_equal(first, other, sizeof first); /* all ranks draw one order */
    stress_order(&a, 6, 40, other);
    assert_memory_not_equal(first, other, sizeof first);
    stress_order(&b, 5, 40, other);
    assert_memory_not_equal(first, other, sizeof first);
}

/* With as many threads as a group has pieces, no thread waits for a piece that no thread holds. */
static void turns_stay_in_their_group(void **state)
{
    int turn[11], moved = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct stress s = { seed, 0, 1 };

        stress_turns(&s, 3, 11, 4, turn);
        check_permutation(turn, 11);
        for (int i = 0; i < 11; i++) {
            assert_int_equal(turn[i] / 4, i / 4);
            moved += turn[i] != i;
        }
    }
    assert_true(moved > 11 * SEEDS / 2);
}

/* ---- memory ---- */

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

enum { BYTES = 10000, PIECES = 16 };

/* With each seed blocks begin elsewhere. Sooner or later they hold each of the patterns, to their last byte. */
static void nobody_finds_zeros_where_nobody_wrote(void **state)
{
    struct device *dev = open_device();
    int zeros = 0, ones = 0, nans = 0, apart = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct stress s = { seed, 0, 1 };
        struct arena *a = arena_new(dev, 1 << 20);
        const unsigned char *p[PIECES];

        arena_stress(a, &s);
        for (int i = 0; i < PIECES; i++) {
            uint32_t last;

            p[i] = arena_alloc(a, BYTES);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % 64, 0);
            memcpy(&last, p[i] + BYTES - sizeof last, sizeof last);
            assert_memory_equal(p[i] + 4096, p[i], 4096); /* a pattern of so many bytes, again and again */
            zeros += last == 0;
            ones += last == UINT32_MAX;
            nans += last == 0x7FA07FA0u;
            apart += i > 0 && p[i] - p[i - 1] != p[1] - p[0];
        }
        arena_free(a);
    }
    assert_true(zeros > SEEDS && ones > SEEDS && nans > SEEDS && zeros + ones + nans < SEEDS * PIECES);
    assert_true(apart > SEEDS * PIECES / 2);
    dev->ops->close(dev);
}

static void chunks_begin_at_many_places(void **state)
{
    size_t seen = 0;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const struct stress s = { seed, 3, 4 };
        size_t shift = stress_shift(&s, 0);

        assert_true(shift < STRESS_SHIFT && shift % 256 == 0);
        seen |= shift;
    }
    assert_true(seen > STRESS_SHIFT / 2);
}

/* The patterns at the start of chunks go back to the device whole, also when several chunks become one. */
static void forced_chunks_go_back(void **state)
{
    struct device *dev = open_device();
    const struct stress s = { 5, 0, 1 };
    struct arena *a = arena_new(dev, 1 << 16);

    (void)state;
    arena_stress(a, &s);
    for (int step = 0; step < 20; step++) {
        void *p[8];

        for (int i = 0; i < 8; i++) {
            p[i] = arena_alloc(a, (size_t)30000 * (size_t)(1 + step % 3));
            assert_non_null(p[i]);
            memset(p[i], i, (size_t)30000 * (size_t)(1 + step % 3));
        }
        for (int i = 0; i < 8; i += 2)
            arena_release(a, p[i]);
        arena_reset(a);
    }
    arena_free(a);
    dev->ops->close(dev);
}

/* ---- pictures: a task that numbers its samples as they are made, which real tasks must not do ---- */

enum { SAMPLES = 32, BATCH = 16, STEPS = 4 };

struct counting {
    struct task task; /* stays first */
    int made;
};

static struct canvas canvas_of(const struct task *t, int64_t step, const struct draw *draw, int n)
{
    (void)step;
    (void)draw;
    (void)n;
    return t->largest;
}

static int make(struct task *t, struct hand *hand, int64_t step, struct draw draw, struct canvas canvas, const struct sample *ret,
                struct err *err)
{
    struct counting *c = (struct counting *)t;

    (void)hand;
    (void)step;
    (void)draw;
    (void)canvas;
    (void)err;
    *(float *)ret->array[0] = (float)c->made++; /* by one thread */
    return 0;
}

/* ret: the number in each place of the first step. */
static void count(const struct stress *s, float ret[BATCH])
{
    static const struct task_ops ops = { canvas_of, make, NULL };
    static const struct batch_form form = { .narrays = 1,
                                            .array = { { .name = "number", .dtype = DTYPE_F32, .of = BATCH_IMAGES, .width = 1 } } };
    struct counting c = { .task = { .ops = &ops, .form = &form, .samples = SAMPLES, .source = "numbers", .largest = { 32, 32 } } };
    const struct loader_options o = {
        .train = true, .batch = BATCH, .shards = 1, .shard_hi = 1, .waves = 1, .first_step = 1, .steps = STEPS, .workers = 1, .stress = s
    };
    struct loader *l;
    struct batch b;
    struct err err;

    if (loader_open(&c.task, &o, &l, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(loader_next(l, &b, &err), 0);
    memcpy(ret, b.shard[0].array[0], BATCH * sizeof *ret);
    loader_close(l);
}

static void pictures_are_taken_in_another_order(void **state)
{
    const struct stress one = { 1, 0, 1 }, two = { 2, 0, 1 };
    float calm[BATCH], first[BATCH], second[BATCH];

    (void)state;
    count(NULL, calm);
    for (int i = 0; i < BATCH; i++)
        assert_true(calm[i] == (float)i);
    count(&one, first);
    count(&two, second);
    assert_memory_not_equal(calm, first, sizeof calm);
    assert_memory_not_equal(first, second, sizeof first);
}

/* ---- ranks ---- */

/* Each of three ranks is the last to arrive in about a third of the collectives with a delayed rank. */
static void every_rank_comes_last_sometimes(void **state)
{
    int calm = 0, last[3] = { 0 };

    (void)state;
    for (uint32_t number = 1; number <= 1000; number++) {
        uint64_t late[3], most = 0;
        int who = 0;

        for (int r = 0; r < 3; r++) {
            const struct stress s = { 9, r, 3 };

            late[r] = stress_late_us(&s, 1, number);
            assert_true(late[r] <= STRESS_ARRIVE_US);
            who = late[r] > most ? r : who;
            most = late[r] > most ? late[r] : most;
        }
        calm += most == 0;
        last[who] += most > 0;
    }
    assert_true(calm > 600 && calm < 900);
    for (int r = 0; r < 3; r++)
        assert_true(last[r] > 40);
    assert_int_equal(stress_late_us(&(struct stress){ 9, 0, 1 }, 1, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_drawn_by_seed_and_round),
        cmocka_unit_test(turns_stay_in_their_group),
        cmocka_unit_test(nobody_finds_zeros_where_nobody_wrote),
        cmocka_unit_test(chunks_begin_at_many_places),
        cmocka_unit_test(forced_chunks_go_back),
        cmocka_unit_test(pictures_are_taken_in_another_order),
        cmocka_unit_test(every_rank_comes_last_sometimes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
