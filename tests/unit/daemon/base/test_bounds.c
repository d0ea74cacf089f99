/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/base/test_bounds.c - uses: proto daemon
 * Each row of the table of bounds: one user fills it, and others go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/base/bounds.h"
#include "proto/err.h"

static bool fits(enum bound_id id, int64_t all, int64_t guests, int64_t user, bool admin)
{
    const struct bound_load load = { all, guests, user };
    struct err err = { 0 };
    int rc = bound_check(id, &load, admin, &err);

    assert_int_equal(rc, err.code);
    assert_true(rc == 0 || (rc == ERR_STATE && strstr(err.msg, bounds[id].what)));
    return rc == 0;
}

/* A user takes the whole share. Another user and an admin still have room for a share of theirs. */
static void a_user_leaves_room_for_others(void **state)
{
    (void)state;
    for (enum bound_id id = 0; id < BOUND_COUNT; id++) {
        const struct bound *b = &bounds[id];

        assert_true(b->share > 0 && b->what[0]);
        assert_true(fits(id, b->share, b->share, b->share, false));
        assert_false(fits(id, b->share + 1, b->share + 1, b->share + 1, false));
        assert_true(fits(id, 2 * b->share, 2 * b->share, b->share, false));
        assert_true(fits(id, 2 * b->share, b->share, b->share, true));
    }
}

/* Many users take all that there is for users. An admin still has the reserve. */
static void all_users_leave_the_reserve(void **state)
{
    (void)state;
    for (enum bound_id id = 0; id < BOUND_COUNT; id++) {
        const struct bound *b = &bounds[id];
        int64_t guests = b->most - b->reserve;

        if (!b->most)
            continue;
        assert_true(b->reserve > 0 && 2 * b->share <= guests);
        assert_true(fits(id, guests, guests, 1, false));
        assert_false(fits(id, guests + 1, guests + 1, 1, false));
        assert_true(fits(id, b->most, guests, b->reserve, true));
        assert_false(fits(id, b->most + 1, guests, b->reserve + 1, true));
        assert_false(fits(id, b->most + 1, 1, 1, false)); /* nor does a user have the admins' */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_leaves_room_for_others),
        cmocka_unit_test(all_users_leave_the_reserve),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
