/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_shares.c - uses: proto daemon
 * Slots granted to users: counted while they are held, kept over restarts, forgotten after seven days of running. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/jobs/jobs.h"
#include "daemon/run/shares.h"
#include "tests/unit/daemon/store/store_fixture.h"

enum { HOUR_S = 3600, WEEK_S = 7 * 24 * HOUR_S };

static struct job on_cpu = { .row = { .id = 1, .uid = 7, .user = "ann", .ranks = 2 }, .cpu_slots = 4 };
static struct job on_gpus = { .row = {
                                  .id = 2, .uid = 8, .user = "bob", .ranks = 3, .ranks_per_gpu = 2, .cuda = true, .gpus = "GPU-1,GPU-2" } };
static struct job waits = { .row = { .id = 3, .uid = 9, .user = "eve", .ranks = 1 } };
static struct job *all[] = { &on_cpu, &on_gpus, &waits };
static const struct jobs jobs = { .all = all, .count = 3 };

static void run_to(struct shares *s, double until)
{
    while (s->at < until)
        shares_tick(s, &jobs, s->at + 60 < until ? s->at + 60 : until);
}

static void open_shares(struct shares *s, struct fixture *f, double running)
{
    struct err err;

    assert_int_equal(shares_open(s, f->s, running, &err), 0);
}

static void slots_are_counted_while_they_are_held(void **state)
{
    struct fixture *f = *state;
    struct shares s;

    open_shares(&s, f, 100);
    run_to(&s, 100 + HOUR_S);
    assert_float_equal(shares_granted(&s, 7, false), 4 * HOUR_S, 1);
    assert_float_equal(shares_granted(&s, 7, true), 0, 0);
    assert_float_equal(shares_granted(&s, 8, true), 2 * HOUR_S, 1);
    assert_float_equal(shares_granted(&s, 9, false), 0, 0);
    shares_close(&s);
    close_store(f);
    open_again(f);
    open_shares(&s, f, 100 + HOUR_S); /* the time without detd does not count */
    assert_float_equal(shares_granted(&s, 7, false), 4 * HOUR_S, 1);
    assert_float_equal(shares_granted(&s, 8, true), 2 * HOUR_S, 1);
    run_to(&s, 100 + WEEK_S);
    assert_float_equal(shares_granted(&s, 7, false), 4 * WEEK_S, 5 * HOUR_S); /* whole hours are forgotten */
    shares_close(&s);
}

static void seven_days_of_running_count(void **state)
{
    struct fixture *f = *state;
    struct shares s;
    struct text t = { 0 };
    json_t *root;

    open_shares(&s, f, 0);
    run_to(&s, HOUR_S);
    on_cpu.cpu_slots = on_gpus.row.gpus[0] = 0;
    run_to(&s, WEEK_S - 1);
    assert_float_equal(shares_granted(&s, 7, false), 4 * HOUR_S, 1);
    run_to(&s, WEEK_S + HOUR_S);
    assert_float_equal(shares_granted(&s, 7, false), 0, 0.001);
    shares_close(&s);
    close_store(f);
    open_again(f);
    open_shares(&s, f, WEEK_S + HOUR_S);
    assert_float_equal(shares_granted(&s, 8, true), 0, 0.001);
    shares_close(&s);
    /* but `detctl usage --by user` tells about all time */
    assert_int_equal(store_user_usage(f->s, 0, &t, NULL), 0);
    root = json_of(&t);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(root, "rows"), 0), "user")), "bob");
    assert_float_equal(json_number_value(json_object_get(json_array_get(json_object_get(root, "rows"), 1), "cpu_slot_hours")), 4, 0.01);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(slots_are_counted_while_they_are_held),
        TEST(seven_days_of_running_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
