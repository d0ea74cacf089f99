/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/run/test_removal.c - uses: proto daemon
 * A removal that has to wait, for an end on its way to the disk or for processes that leave: it begins, or says why it
 * does not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/jobs/event.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/removal.h"
#include "tests/unit/daemon/store/store_fixture.h"

struct answer {
    int count, rc;
    char text[sizeof((struct err *)NULL)->msg];
};

static void answered(void *arg, int rc, int64_t value, const struct err *err)
{
    struct answer *a = arg;

    (void)value;
    a->count++;
    a->rc = rc;
    snprintf(a->text, sizeof a->text, "%s", rc < 0 ? err->msg : "");
}

/* A job that has ended, with a condition that delays its removal. */
static void wait_for(struct fixture *f, struct job how, struct answer *ret)
{
    const struct events events = { .store = f->s, .wanted = nobody_listens };
    struct jobs jobs = { .store = f->s, .events = &events };
    bool stopping = false;
    struct removals r = { .jobs = &jobs, .stopping = &stopping };
    struct job_row row = { .id = 3, .state = JOB_COMPLETED, .name = "a", .user = "ann" };
    struct job *j = jobs_add(&jobs, &row);
    struct err err;

    assert_non_null(j);
    j->life = how.life;
    j->hidden_until = how.hidden_until;
    memcpy(j->trouble, how.trouble, sizeof j->trouble);
    *ret = (struct answer){ 0 };
    assert_int_equal(removal_begin(&r, &row, "ann", answered, ret, &err), 0);
    for (int tick = 0; tick < 51; tick++) /* run.on_end may take 50 s */
        removal_tick(&r);
    assert_int_equal(ret->count, 0);
    for (int tick = 51; tick < 60; tick++) /* and detctl waits 60 s for an answer */
        removal_tick(&r);
    assert_int_equal(ret->count, 1);
    assert_int_equal(ret->rc, ERR_STATE);
    assert_false(j->leaving);
    assert_null(r.waiting);
    jobs_free(&jobs);
}

static void who_waits_too_long_hears_for_what(void **state)
{
    struct answer a;

    wait_for(*state, (struct job){ .hidden_until = 7 }, &a);
    assert_string_equal(a.text, "job 3 was not removed and stays as it is; ask again later: its end is not on the disk after 55 s");
    wait_for(*state, (struct job){ .life = { .phase = LIFE_LEAVING } }, &a);
    assert_string_equal(a.text, "job 3 was not removed and stays as it is; ask again later: its processes have not left after 55 s");
    wait_for(*state, (struct job){ .life = { .phase = LIFE_STUCK }, .trouble = "7 does not end" }, &a);
    assert_string_equal(
        a.text, "job 3 was not removed and stays as it is; ask again later: its processes have not left after 55 s: 7 does not end");
}

/* If two requests name the same job, the second is refused and the first continues. */
static void a_second_removal_is_refused(void **state)
{
    struct fixture *f = *state;
    const struct events events = { .store = f->s, .wanted = nobody_listens };
    struct jobs jobs = { .store = f->s, .events = &events };
    bool stopping = false;
    struct removals r = { .jobs = &jobs, .stopping = &stopping };
    struct job_row row = { .id = 3, .state = JOB_COMPLETED, .name = "a", .user = "ann" };
    struct job *j = jobs_add(&jobs, &row);
    struct answer first = { 0 }, second = { 0 };
    struct err err = { 0 };

    assert_int_equal(removal_begin(&r, &row, "ann", answered, &first, &err), 0);
    assert_true(j->leaving);
    assert_int_equal(removal_begin(&r, &row, "ann", answered, &second, &err), ERR_STATE);
    assert_string_equal(err.msg, "job 3 is being removed");
    assert_int_equal(first.count + second.count, 0);
    while (first.count == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_true(first.count == 1 && second.count == 0 && !j->leaving);
    jobs_free(&jobs);
}

/* Reports that come while the removal waits leave the user's share of the database with the job. */
static void all_of_a_job_leaves_the_share(void **state)
{
    struct fixture *f = *state;
    const struct events events = { .store = f->s, .wanted = nobody_listens };
    struct jobs jobs = { .store = f->s, .events = &events };
    bool stopping = false;
    struct removals r = { .jobs = &jobs, .stopping = &stopping };
    struct job_row row = { .id = submit(f, "t", 7), .uid = 7, .state = JOB_COMPLETED, .name = "a", .user = "ann" };
    struct job *j = jobs_add(&jobs, &row);
    struct answer a = { 0 };
    struct err err;

    sql_all(f, "UPDATE jobs SET state = 'completed'");
    user_shares_of(&jobs.shares, 7)->stored = jobs_stored(&jobs, 0); /* as its submission does */
    j->life.phase = LIFE_LEAVING;
    assert_int_equal(removal_begin(&r, &j->row, "ann", answered, &a, &err), 0);
    jobs_keep(&jobs, j, 500, false);
    assert_int_equal(user_shares_of(&jobs.shares, 7)->stored, JOBS_FILES_BYTES + 500);
    j->life.phase = LIFE_IDLE;
    removal_tick(&r);
    stopping = true; /* the rest of the removal is not tested here */
    while (a.count == 0)
        uv_run(&f->loop, UV_RUN_ONCE);
    assert_int_equal(a.rc, 0);
    assert_int_equal(user_shares_of(&jobs.shares, 7)->stored, 0);
    jobs_free(&jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_second_removal_is_refused),
        TEST(all_of_a_job_leaves_the_share),
        cmocka_unit_test_setup_teardown(who_waits_too_long_hears_for_what, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
