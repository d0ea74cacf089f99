/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/store/test_store_failures.c - the database when writes fail: kill -9 in mid-commit, no room, a stop. uses: proto daemon */
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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/unit/daemon/store/store_fixture.h"

/* SQLite's writes: the one that comes when none is left is carried out by half, and nothing after it. */
static int writes_left;

static size_t survive(size_t bytes)
{
    return --writes_left == 0 ? bytes / 2 : bytes;
}

static ssize_t die(ssize_t written)
{
    if (writes_left == 0)
        raise(SIGKILL);
    return written;
}

static ssize_t mortal_write(int fd, const void *buf, size_t n)
{
    return die(write(fd, buf, survive(n)));
}

static ssize_t mortal_pwrite(int fd, const void *buf, size_t n, off_t at)
{
    return die(pwrite(fd, buf, survive(n), at));
}

static void limit_writes(int writes)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    writes_left = writes;
    vfs->xSetSystemCall(vfs, "write", (sqlite3_syscall_ptr)(void *)mortal_write);
    vfs->xSetSystemCall(vfs, "pwrite", (sqlite3_syscall_ptr)(void *)mortal_pwrite);
    vfs->xSetSystemCall(vfs, "pwrite64", (sqlite3_syscall_ptr)(void *)mortal_pwrite);
}

/* The child reports and says which seq the store has acknowledged, till one of its writes kills it. */
static void report_for_ever(struct fixture *f, int to_parent, int64_t from, int writes)
{
    open_again(f);
    limit_writes(writes);
    for (int64_t seq = from;; seq++) {
        loss(f, 1, seq, "train", (int)seq);
        if (seq % 50 == 0) {
            f->waiting++;
            store_setting(f->s, "k", "v", done, f); /* somebody waits: what came before is committed at once */
            wait_all(f);
            if (write(to_parent, &seq, sizeof seq) != sizeof seq)
                _exit(1);
        }
    }
}

static void kill_in_mid_commit(void **state)
{
    struct fixture *f = *state;
    int64_t acked = 0;
    char query[200];

    submit(f, "a", 1);
    close_store(f);
    for (int writes = 1; writes < 160; writes += 13) {
        int fds[2], status;
        int64_t seq;
        struct job_row row;
        pid_t child;

        assert_int_equal(pipe(fds), 0);
        child = fork();
        if (child == 0) {
            close(fds[0]);
            report_for_ever(f, fds[1], acked + 1, writes);
        }
        close(fds[1]);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(fds[0], &seq, sizeof seq) == sizeof seq)
            acked = seq;
        close(fds[0]);
        open_again(f);
        store_get_job(f->s, 1, &row, NULL);
        assert_true(row.last_seq >= acked);
        snprintf(query, sizeof query, "SELECT count(*)=%lld AND coalesce(max(step), 0)=%lld FROM loss WHERE term='total'",
                 (long long)row.last_seq, (long long)row.last_seq);
        assert_string_equal(sql(f, query), "1");
        acked = row.last_seq;
        close_store(f);
    }
    assert_true(acked > 0);
    open_again(f);
}

/* Nothing may grow past a byte: what users ask is refused at once, as on a disk that is full, with the right reason, whatever SQLite calls it. */
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

/* A stop tries three times more, four where one was under way, and then gives the first batch up. The next, which could be written, may not be: its
 * numbers would say that the reports before it are stored, and nobody would send them again. */
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
        TEST(kill_in_mid_commit),
        TEST(what_cannot_be_written_says_why),
        TEST(nothing_is_written_behind_what_was_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
