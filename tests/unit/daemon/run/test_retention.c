/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_retention.c - uses: proto daemon
 * Ages are counted in time that detd has run, whatever the wall clock says. */
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

double __wrap_boot_s(void);

static double booted;

double __wrap_boot_s(void)
{
    return booted;
}

/* Lets `days` pass for a detd, with a look at each, and returns how many events are left. */
static int left(struct fixture *f, struct retention *r, int days)
{
    for (int i = 0; i < days; i++) {
        booted += DAY_S;
        r->ticks = 3600;
        retention_tick(r);
        while (r->busy)
            uv_run(&f->loop, UV_RUN_ONCE);
    }
    f->waiting++;
    store_setting(f->s, "k", "v", done, f);
    wait_all(f);
    return atoi(sql(f, "SELECT count(*) FROM events"));
}

static void events_age_while_detd_runs(void **state)
{
    struct fixture *f = *state;
    struct jobs jobs = { .store = f->s };
    bool stopping = false;
    struct removals removals = { .jobs = &jobs, .stopping = &stopping };
    struct retention r = { .removals = &removals, .days = { .events = 10 } }, next = r;
    char running[32];

    booted = 1000 * DAY_S; /* the node has been up for long */
    retention_tick(&r);
    store_event(f->s, 0, "info", "k", "of year 1970", 1);
    store_event(f->s, 0, "info", "k", "of a year to come", now_s() + 1000.0 * DAY_S);
    assert_int_equal(left(f, &r, 8), 2);
    retention_note(&r);
    booted += 100 * DAY_S; /* no detd ran */
    store_get_setting(f->s, "running", running, sizeof running, NULL);
    next.running = strtod(running, NULL);
    assert_int_equal((int)next.running, 8 * DAY_S);
    retention_tick(&next);
    store_event(f->s, 0, "info", "k", "younger", 1);
    assert_int_equal(left(f, &next, 2), 3);
    assert_int_equal(left(f, &next, 1), 1);
    assert_string_equal(sql(f, "SELECT text FROM events"), "younger");
}

/* A job's age begins with its end, and anew if it is queued again. */
static void jobs_age_from_their_end(void **state)
{
    struct fixture *f = *state;
    struct job_row row;

    submit(f, "a", 7);
    store_get_job(f->s, 1, &row, NULL);
    for (int i = 0; i < 3; i++) {
        store_running(f->s, 100 + i);
        row.state = i == 1 ? JOB_QUEUED : JOB_COMPLETED;
        row.ended = i == 1 ? 0 : 1e12 * (i + 1);
        for (int again = 0; again < 2; again++) {
            f->waiting++;
            store_save(f->s, &row, done, f);
            wait_all(f);
            assert_string_equal(sql(f, "SELECT coalesce(ended_running, 'none') FROM jobs"), i == 0 ? "100.0" : i == 1 ? "none" : "102.0");
            if (again == 0)
                store_running(f->s, 100.0 + i); /* as detd does, again and again */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(events_age_while_detd_runs),
        TEST(jobs_age_from_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
