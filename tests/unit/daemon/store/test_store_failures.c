/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store_failures.c - the database when writes
 * fail: no room, a stop. uses: proto daemon */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/daemon/store/store_fixture.h"

/* No file may grow past a byte: users' requests are refused at once, as on a full disk. The reason must be right for
 * any error of SQLite. */
static void what_cannot_be_written_says_why(void **state)
{
    struct fixture *f = *state;
    struct job_row row = { .state = JOB_QUEUED, .want_tier = -1, .tier = 1, .ranks = 2, .steps = 100, .submitted = 50 };
    struct rlimit before, none = { 1, 0 };
    char text[256] = "";

    strcpy(row.name, "n");
    strcpy(row.user, "u");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    f->waiting++;
    store_submit(f->s, &row, "late", "{}", done, f);
    while (!text[0]) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
        store_trouble(f->s, text, sizeof text);
    }
    wait_all(f);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(f->rc, -ENOSPC);
    assert_non_null(strstr(f->said, "the limit of file sizes (ulimit -f) is reached: "));
    assert_string_equal(text, "detd.db cannot be written: the limit of file sizes (ulimit -f) is reached; trying again");
    f->waiting++;
    store_submit(f->s, &row, "later", "{}", done, f);
    wait_all(f);
    assert_int_equal(f->rc, 0);
    store_trouble(f->s, text, sizeof text);
    assert_string_equal(text, "");
}

static atomic_int failures; /* of the next writes; < 0: of all */

static ssize_t failing_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    if (failures == 0)
        return pwrite(fd, buf, n, at);
    if (failures > 0)
        failures--;
    errno = EIO;
    return -1;
}

static void replace_pwrite(sqlite3_syscall_ptr fn)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    vfs->xSetSystemCall(vfs, "pwrite", fn);
    vfs->xSetSystemCall(vfs, "pwrite64", fn);
}

/* A stop tries three times more, four if a try was under way, and then gives the first batch up. The next batch could
 * be written, but must not be: its numbers would say that the reports before it are stored, and no supervisor would
 * send them again. */
static void nothing_is_written_behind_what_was_given_up(void **state)
{
    struct fixture *f = *state;
    int64_t job = submit(f, "a", 1), seq = 1;
    char text[256] = "";

    replace_pwrite((sqlite3_syscall_ptr)(void *)failing_pwrite);
    failures = -1;
    for (; seq <= 10; seq++)
        loss(f, job, seq, "train", (int)seq);
    f->waiting++;
    store_setting(f->s, "k", "v", done, f);
    while (!text[0])
        store_trouble(f->s, text, sizeof text);
    for (; seq <= 20; seq++)
        loss(f, job, seq, "train", (int)seq);
    failures = 5;
    close_store(f);
    failures = 0;
    replace_pwrite(NULL);
    assert_int_equal(f->waiting, 0);
    assert_true(f->rc < 0);
    assert_string_equal(sql(f, "SELECT last_seq || ' ' || (SELECT count(*) FROM loss) FROM jobs"), "0 0");
    open_again(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_cannot_be_written_says_why),
        TEST(nothing_is_written_behind_what_was_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
