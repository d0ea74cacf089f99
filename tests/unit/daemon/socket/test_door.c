/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/socket/test_door.c - uses: proto daemon
 * Which connections are accepted when all are taken, and which connection must close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/socket/door.h"
#include "proto/err.h"

enum { DOOR_MAX = 512, DOOR_ADMINS = 32, DOOR_USER_MAX = 128 };

static struct door_guest guests[DOOR_MAX];
static int n;

static void add(int count, uid_t uid, bool admin, uint64_t idle_since)
{
    for (int i = 0; i < count; i++)
        guests[n++] = (struct door_guest){ uid, admin, idle_since };
}

static int ask(uid_t uid, bool admin)
{
    struct door_guest newcomer = { uid, admin, 0 };
    struct err err = { 0 };
    int answer = door_ask(guests, n, &newcomer, &err);

    assert_int_equal(err.code, answer < DOOR_ENTER ? answer : 0);
    return answer;
}

static int clear(void **state)
{
    (void)state;
    memset(guests, 0, sizeof guests);
    n = 0;
    return 0;
}

static void one_user(void **state)
{
    (void)state;
    add(DOOR_USER_MAX - 1, 7, false, 0);
    assert_int_equal(ask(7, false), DOOR_ENTER);
    add(1, 7, false, 0);
    assert_int_equal(ask(7, false), ERR_STATE);
    assert_int_equal(ask(8, false), DOOR_ENTER);
    assert_int_equal(ask(7, true), DOOR_ENTER);
    guests[5].idle_since = 30;
    guests[9].idle_since = 20;
    guests[11].idle_since = 25;
    assert_int_equal(ask(7, false), 9);
    assert_int_equal(ask(8, false), DOOR_ENTER);
}

/* Idle connections of others make no room for a user with a full quota. */
static void no_others_leave_for_a_user_who_has_enough(void **state)
{
    (void)state;
    add(DOOR_USER_MAX, 7, false, 0);
    add(1, 8, false, 1);
    add(1, 0, true, 1);
    assert_int_equal(ask(7, false), ERR_STATE);
}

static void some_are_kept_for_admins(void **state)
{
    (void)state;
    for (uid_t uid = 1; n < DOOR_MAX - DOOR_ADMINS; uid++)
        add(1, uid, false, 0);
    assert_int_equal(ask(1000, false), ERR_STATE);
    assert_int_equal(ask(0, true), DOOR_ENTER);
    add(DOOR_ADMINS - 1, 0, true, 10);
    assert_int_equal(ask(0, true), DOOR_ENTER);
    add(1, 0, true, 0);
    assert_int_equal(ask(0, true), DOOR_MAX - DOOR_ADMINS);
    assert_int_equal(ask(1000, false), ERR_STATE); /* no connection of an admin closes for it */
    guests[3].idle_since = 50;
    assert_int_equal(ask(1000, false), 3);
    guests[3].idle_since = 5;
    assert_int_equal(ask(0, true), 3);
}

static void admins_fill_all(void **state)
{
    (void)state;
    add(DOOR_MAX, 0, true, 0);
    assert_int_equal(ask(0, true), ERR_STATE);
    assert_int_equal(ask(7, false), ERR_STATE);
    guests[0].idle_since = 1;
    assert_int_equal(ask(7, false), ERR_STATE);
    assert_int_equal(ask(0, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_user, clear),
        cmocka_unit_test_setup(no_others_leave_for_a_user_who_has_enough, clear),
        cmocka_unit_test_setup(some_are_kept_for_admins, clear),
        cmocka_unit_test_setup(admins_fill_all, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
