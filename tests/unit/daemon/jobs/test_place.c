/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/jobs/test_place.c - uses: proto daemon
 * How many jobs that have not ended a user may have, and which places are left for others and for admins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/jobs/jobs.h"
#include "daemon/jobs/place.h"
#include "proto/err.h"

enum { BOB = 1002, ANN = 1001 };

static int setup(void **state)
{
    *state = calloc(1, sizeof(struct jobs));
    return 0;
}

static int teardown(void **state)
{
    jobs_free(*state);
    free(*state);
    return 0;
}

static void add(struct jobs *jobs, uid_t uid, int n, enum job_state state)
{
    for (int i = 0; i < n; i++) {
        const struct job_row row = { .id = jobs->count + 1, .uid = uid, .state = state };

        assert_non_null(jobs_add(jobs, &row));
    }
}

static bool has_place(struct jobs *jobs, uid_t uid, bool admin)
{
    struct user_share *place = NULL;
    struct err err = { 0 };
    int rc = place_take(jobs, uid, admin, &place, &err);

    place_give_back(place);
    assert_int_equal(rc, err.code);
    assert_true(rc == 0 || (rc == ERR_STATE && (strstr(err.msg, "jobs that have not ended") || strstr(err.msg, "user_stored"))));
    return rc == 0;
}

/* One user fills the share: others and admins still submit. Ended jobs take no place. */
static void one_user_fills_the_share(void **state)
{
    struct jobs *jobs = *state;
    struct user_share *places[10];

    add(jobs, BOB, 5000, JOB_COMPLETED);
    add(jobs, BOB, 2000, JOB_QUEUED);
    add(jobs, BOB, 490, JOB_PAUSED);
    for (int i = 0; i < 10; i++) {
        assert_true(has_place(jobs, BOB, false));
        assert_int_equal(place_take(jobs, BOB, false, &places[i], NULL), 0); /* on its way */
    }
    assert_false(has_place(jobs, BOB, false));
    assert_true(has_place(jobs, ANN, false));
    assert_true(has_place(jobs, 0, true));
    assert_true(has_place(jobs, BOB, true));
    place_give_back(places[0]);
    assert_true(has_place(jobs, BOB, false));
}

static void all_users_leave_places_for_admins(void **state)
{
    struct jobs *jobs = *state;

    for (uid_t uid = 2001; uid <= 2004; uid++)
        add(jobs, uid, 2375, JOB_RUNNING);
    assert_false(has_place(jobs, ANN, false));
    assert_true(has_place(jobs, 0, true));
    add(jobs, 0, 500, JOB_QUEUED);
    assert_false(has_place(jobs, 0, true));
}

static void one_user_fills_the_database(void **state)
{
    struct jobs *jobs = *state;

    jobs->stored_max = 1000;
    user_shares_of(&jobs->shares, BOB)->stored = 999;
    assert_true(has_place(jobs, BOB, false));
    user_shares_of(&jobs->shares, BOB)->stored = 1000;
    assert_false(has_place(jobs, BOB, false));
    assert_true(has_place(jobs, BOB, true));
    assert_true(has_place(jobs, ANN, false));
    assert_true(has_place(jobs, 0, true));
}

/* Rows beyond report_max are not stored. detd's own files of the job are there in any case. */
static void a_job_takes_room_for_its_files(void **state)
{
    struct jobs *jobs = *state;

    assert_int_equal(jobs_stored(jobs, 5000), 24 * 1024 + 5000);
    jobs->report_max = 1000;
    assert_int_equal(jobs_stored(jobs, 5000), 24 * 1024 + 1000);
    assert_int_equal(jobs_stored(jobs, 0), 24 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_user_fills_the_share, setup, teardown),
        cmocka_unit_test_setup_teardown(one_user_fills_the_database, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_takes_room_for_its_files, setup, teardown),
        cmocka_unit_test_setup_teardown(all_users_leave_places_for_admins, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
