/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_retention.c - uses: proto daemon
 * When detd trusts the clock enough to remove old data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/base/clock.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/removal.h"
#include "daemon/run/retention.h"
#include "tests/unit/daemon/store/store_fixture.h"

enum { DAY_S = 24 * 3600 };

bool __wrap_clock_is_kept(void);

static bool kept;

bool __wrap_clock_is_kept(void)
{
    return kept;
}

/* Whether a detd removes old events after `up` seconds, if the newest time in its database was `idle` seconds before
 * its start. */
static bool removes(struct fixture *f, double up, double idle)
{
    struct jobs jobs = { .store = f->s };
    bool stopping = false;
    struct removals removals = { .jobs = &jobs, .stopping = &stopping };
    struct retention r = { .removals = &removals, .days = { .events = 400 }, .newest = now_s() - up - idle, .opened = mono_s() - up };
    bool begun;

    retention_tick(&r);
    begun = r.busy;
    while (r.busy)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_true(begun != r.doubts);
    return begun;
}

static void a_clock_far_ahead_is_not_trusted(void **state)
{
    kept = false;
    assert_true(removes(*state, 0, 29 * DAY_S));
    assert_false(removes(*state, 0, 31 * DAY_S));
    kept = true;
    assert_true(removes(*state, 0, 31 * DAY_S));
}

static void time_that_detd_was_up_is_no_jump(void **state)
{
    kept = false;
    assert_true(removes(*state, 40 * DAY_S, DAY_S));
    assert_true(removes(*state, 40 * DAY_S, 29 * DAY_S));
    assert_false(removes(*state, 40 * DAY_S, 31 * DAY_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clock_far_ahead_is_not_trusted),
        TEST(time_that_detd_was_up_is_no_jump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
