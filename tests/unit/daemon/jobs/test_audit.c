/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/jobs/test_audit.c - uses: proto daemon
 * The audit of requests and their users, also when the name lookup has stopped. */
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/jobs/audit.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/event.h"
#include "tests/unit/daemon/store/store_fixture.h"

static int lookups;

/* Takes the place of the C library's, which may ask a server for each name. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *room, size_t size, struct passwd **ret)
{
    lookups++;
    snprintf(room, size, "%s", uid == 0 ? "root" : "bob");
    entry->pw_name = room;
    *ret = uid < 4000000000 ? entry : NULL;
    return 0;
}

static bool nobody(void *arg, unsigned topic)
{
    (void)arg, (void)topic;
    return false;
}

static void names_and_numbers(void **state)
{
    struct fixture *f = *state;
    struct events events = { .store = f->s, .wanted = nobody };
    struct audit a = { .events = &events };
    struct err err;

    assert_int_equal(submit(f, "t", 1000), 1);
    audit_add(&a, 1, 0, "ann", "pause");
    audit_add(&a, 1, 4000000000, NULL, "cancel"); /* of a detd that is stopping */
    assert_int_equal(errands_open(&f->loop, &a.names, &err), 0);
    audit_add(&a, 1, 0, NULL, "resume");
    audit_add(&a, 0, 4000000000, NULL, "drain (%s)", "new driver");
    errands_close(a.names);
    close_store(f);
    open_again(f);
    assert_string_equal(sql(f, "SELECT group_concat(text, '; ') FROM (SELECT text FROM events ORDER BY id)"),
                        "pause by ann (uid 0); cancel by 4000000000 (uid 4000000000); resume by root (uid 0); "
                        "drain (new driver) by 4000000000 (uid 4000000000)");
}

/* Others wait for the same thread when they submit. */
static void a_name_is_not_looked_up_for_each_change(void **state)
{
    struct fixture *f = *state;
    struct events events = { .store = f->s, .wanted = nobody };
    struct audit a = { .events = &events };
    struct err err;

    lookups = 0;
    assert_int_equal(errands_open(&f->loop, &a.names, &err), 0);
    for (int i = 0; i < 2000; i++)
        audit_add(&a, 0, i % 2 ? 1001 : 1002, NULL, "label");
    errands_close(a.names);
    assert_in_range(lookups, 2, 100);
    close_store(f);
    open_again(f);
    assert_string_equal(sql(f, "SELECT group_concat(n || ' ' || text, '; ') FROM (SELECT count(*) AS n, text FROM events GROUP BY text)"),
                        "1000 label by bob (uid 1001); 1000 label by bob (uid 1002)");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(names_and_numbers, setup, teardown),
                                        cmocka_unit_test_setup_teardown(a_name_is_not_looked_up_for_each_change, setup, teardown) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
