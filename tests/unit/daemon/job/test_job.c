/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/job/test_job.c - uses: proto daemon */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/job/job.h"
#include "proto/err.h"
#include "proto/tier.h"

static struct job_row row_in(enum job_state state, enum job_want want)
{
    struct job_row row = { .id = 7, .state = state, .want = want, .want_tier = -1 };

    return row;
}

/* The expected result of every event in every state while the user wants the job to run. -1: refused, -2: no change. */
static const signed char expected[JOB_EVENT_COUNT][JOB_STATE_COUNT] = {
    /* queued starting running stopping paused completed failed cancelled */
    { JOB_PAUSED, JOB_STOPPING, JOB_STOPPING, -2, -2, -1, -1, -1 },
    { -2, -2, -2, JOB_STOPPING, JOB_QUEUED, -1, JOB_QUEUED, -1 },
    { JOB_CANCELLED, JOB_STOPPING, JOB_STOPPING, JOB_STOPPING, JOB_CANCELLED, -1, -1, -2 },
    { JOB_STARTING, -1, -1, -1, -1, -1, -1, -1 },
    { -1, JOB_RUNNING, JOB_RUNNING, JOB_STOPPING, -1, -1, -1, -1 },
    { -1, JOB_STARTING, JOB_STARTING, JOB_STOPPING, -1, -1, -1, -1 },
    { -1, JOB_COMPLETED, JOB_COMPLETED, JOB_COMPLETED, -1, -1, -1, -1 },
    { JOB_FAILED, JOB_FAILED, JOB_FAILED, JOB_FAILED, -1, -1, -1, -1 },
    { -1, JOB_CANCELLED, JOB_CANCELLED, JOB_CANCELLED, -1, -1, -1, -1 },
    { -1, JOB_QUEUED, JOB_QUEUED, JOB_QUEUED, -1, -1, -1, -1 },
    { -1, -1, -1, -1, -1, JOB_QUEUED, -1, -1 },
};

static void every_event_in_every_state(void **state)
{
    (void)state;
    for (int e = 0; e < JOB_EVENT_COUNT; e++)
        for (int s = 0; s < JOB_STATE_COUNT; s++) {
            struct job_row row = row_in((enum job_state)s, JOB_WANT_RUN), before = row;
            struct err err = { 0 };
            int rc = job_apply(&row, (enum job_event)e, "why", 5, &err), want = expected[e][s];

            assert_int_equal(rc, want == -1 ? ERR_STATE : 0);
            assert_int_equal(row.state, want < 0 ? s : want);
            if (want == -1) {
                assert_memory_equal(&row, &before, sizeof row);
                assert_non_null(strstr(err.msg, "job 7"));
            }
        }
}

static void a_stopping_job_ends_as_was_wished(void **state)
{
    static const struct {
        enum job_want want;
        enum job_event event;
        enum job_state end;
    } cases[] = {
        { JOB_WANT_CANCEL, JOB_EV_END_PAUSED, JOB_CANCELLED },    { JOB_WANT_PAUSE, JOB_EV_END_PAUSED, JOB_PAUSED },
        { JOB_WANT_RUN, JOB_EV_END_PAUSED, JOB_QUEUED },          { JOB_WANT_CANCEL, JOB_EV_END_FAILED, JOB_CANCELLED },
        { JOB_WANT_PAUSE, JOB_EV_END_FAILED, JOB_FAILED },        { JOB_WANT_PAUSE, JOB_EV_END_COMPLETED, JOB_COMPLETED },
        { JOB_WANT_CANCEL, JOB_EV_END_COMPLETED, JOB_COMPLETED },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job_row row = row_in(JOB_STOPPING, cases[i].want);

        assert_int_equal(job_apply(&row, cases[i].event, NULL, 9, NULL), 0);
        assert_int_equal(row.state, cases[i].end);
        assert_true(row.ended == (job_is_done(cases[i].end) ? 9 : 0));
    }
}

static void resume_takes_a_pause_back_but_not_a_cancel(void **state)
{
    struct job_row row = row_in(JOB_RUNNING, JOB_WANT_RUN);
    struct err err;

    (void)state;
    assert_int_equal(job_apply(&row, JOB_EV_PAUSE, NULL, 1, NULL), 0);
    assert_int_equal(row.want, JOB_WANT_PAUSE);
    assert_int_equal(job_apply(&row, JOB_EV_RESUME, NULL, 2, NULL), 0);
    assert_int_equal(row.want, JOB_WANT_RUN);
    assert_int_equal(row.state, JOB_STOPPING);
    assert_int_equal(job_apply(&row, JOB_EV_CANCEL, NULL, 3, NULL), 0);
    assert_int_equal(job_apply(&row, JOB_EV_RESUME, NULL, 4, &err), ERR_STATE);
    assert_non_null(strstr(err.msg, "being cancelled"));
    assert_int_equal(row.want, JOB_WANT_CANCEL);
}

static void times_and_reason(void **state)
{
    struct job_row row = row_in(JOB_QUEUED, JOB_WANT_RUN);

    (void)state;
    job_apply(&row, JOB_EV_GRANT, NULL, 10, NULL);
    assert_true(row.started == 10);
    job_apply(&row, JOB_EV_ATTEMPT, NULL, 11, NULL);
    job_apply(&row, JOB_EV_END_PAUSED, NULL, 12, NULL);
    job_apply(&row, JOB_EV_GRANT, NULL, 13, NULL);
    assert_true(row.started == 10); /* the first grant counts */
    job_apply(&row, JOB_EV_END_FAILED, "rank 1 left", 14, NULL);
    assert_true(row.ended == 14);
    assert_string_equal(row.reason, "rank 1 left");
    row = row_in(JOB_QUEUED, JOB_WANT_RUN);
    job_apply(&row, JOB_EV_GRANT, NULL, 10, NULL);
    job_apply(&row, JOB_EV_END_COMPLETED, NULL, 15, NULL);
    job_apply(&row, JOB_EV_EXTEND, NULL, 16, NULL);
    assert_true(row.started == 10 && row.ended == 0); /* it has not ended after all */
}

/* A failed job has spent its budget of deaths: with the old count it would end again before it ran. */
static void a_failed_job_begins_with_a_new_budget(void **state)
{
    struct job_row row = row_in(JOB_FAILED, JOB_WANT_RUN);

    (void)state;
    row.deaths = 4;
    row.backfill = true;
    row.ended = 9;
    assert_int_equal(job_apply(&row, JOB_EV_RESUME, "", 10, NULL), 0);
    assert_true(row.state == JOB_QUEUED && row.deaths == 0 && !row.backfill && row.ended == 0);
}

/* A failed job with unread reports was requeued and never ran. Its end still says so, because that keeps its spool. */
static void unread_reports_are_told_till_it_runs(void **state)
{
    struct job_row row = row_in(JOB_FAILED, JOB_WANT_RUN);

    (void)state;
    snprintf(row.reason, sizeof row.reason, "spool lost: input/output error");
    for (int e = JOB_EV_RESUME; e >= JOB_EV_PAUSE; e--)
        assert_int_equal(job_apply(&row, (enum job_event)e, "", 10, NULL), 0);
    assert_int_equal(job_apply(&row, JOB_EV_RESUME, "", 10, NULL), 0);
    assert_int_equal(job_apply(&row, JOB_EV_CANCEL, "", 11, NULL), 0);
    assert_true(row.state == JOB_CANCELLED && job_has_unread(&row));
    assert_string_equal(row.reason, "spool lost: input/output error");
    row = row_in(JOB_QUEUED, JOB_WANT_RUN);
    snprintf(row.reason, sizeof row.reason, "spool unread: no such file");
    job_apply(&row, JOB_EV_GRANT, "", 12, NULL);
    assert_string_equal(row.reason, "");
    assert_false(job_has_unread(&row));
}

static void names(void **state)
{
    (void)state;
    for (int s = 0; s < JOB_STATE_COUNT; s++)
        assert_int_equal(job_state_parse(job_state_name((enum job_state)s)), s);
    assert_int_equal(job_state_parse("asleep"), -1);
    assert_int_equal(job_state_parse(NULL), -1);
    for (int t = 0; t < TIERS; t++)
        assert_int_equal(tier_parse(tier_name(t)), t);
    assert_int_equal(tier_parse("on"), -1);
    assert_string_equal(tier_name(-1), "");
    for (int k = 0; k < JOB_KINDS; k++)
        assert_int_equal(job_kind_parse(job_kind_name((enum job_kind)k)), k);
    assert_int_equal(job_kind_parse("dance"), JOB_TRAINS);
    assert_int_equal(job_want_parse("pause"), JOB_WANT_PAUSE);
    assert_int_equal(job_want_parse("dance"), JOB_WANT_RUN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state),
        cmocka_unit_test(a_stopping_job_ends_as_was_wished),
        cmocka_unit_test(resume_takes_a_pause_back_but_not_a_cancel),
        cmocka_unit_test(times_and_reason),
        cmocka_unit_test(a_failed_job_begins_with_a_new_budget),
        cmocka_unit_test(unread_reports_are_told_till_it_runs),
        cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
