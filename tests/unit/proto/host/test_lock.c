/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/proto/host/test_lock.c - uses: proto daemon
 * The process that the lock of a job's folder names, and the processes that are killed for it. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/host/lock.h"
#include "tests/unit/proto/host/lock_file.h"

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

/* Starts a process in a session of its own, with or without the lock. It is ready when this returns. A second process
 * of its session is without the lock. */
static pid_t start(const char *name, bool locks, int *ret_member)
{
    int ready[2], member;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        int fd = -1;

        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        member = ret_member ? fork() : -1;
        if (member == 0)
            wait_for_ever();
        prctl(PR_SET_NAME, name);
        if (locks)
            fd = open(path, O_RDWR | O_CLOEXEC);
        if (locks && flock(fd, LOCK_EX | LOCK_NB) < 0)
            _exit(1);
        if (write(ready[1], &member, sizeof member) != sizeof member)
            _exit(1);
        wait_for_ever();
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &member, sizeof member), sizeof member);
    close(ready[0]);
    if (ret_member)
        *ret_member = member;
    return pid;
}

static void write_session(long session)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fprintf(f, "%ld\n", session);
    fclose(f);
}

static int kill_by_lock(const char *file, char *ret, size_t size)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC), found;

    assert_true(fd >= 0);
    found = lock_kill(fd, ret, size);
    close(fd);
    return found;
}

/* The signal that killed the child; SIGTERM if no other signal reached it. */
static int death_of(pid_t pid)
{
    int status = 0;

    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    return WTERMSIG(status);
}

/* The text must name `pid`, with this name, as the first process killed by SIGKILL. */
static void assert_names(const char *who, pid_t pid, const char *name)
{
    int said = 0, len = 0;
    char called[64], process_state;

    if (sscanf(who, "process %d (%63[^,], state %c)%n", &said, called, &process_state, &len) != 3 || who[len] || len == 0)
        fail_msg("'%s' names nobody", who);
    assert_int_equal(said, pid);
    assert_string_equal(called, name);
    assert_non_null(strchr("RSD", process_state));
}

/* A supervisor has the lock, and has not written its session yet: the number in the file now belongs to another
 * session. */
static void a_stale_number_kills_nobody(void **state)
{
    pid_t other = start("other", false, NULL), holder = start("holder", true, NULL);
    char who[160];

    (void)state;
    write_session(other);
    assert_int_equal(kill_by_lock(path, who, sizeof who), 1);
    assert_names(who, holder, "holder");
    assert_int_equal(death_of(holder), SIGKILL);
    assert_int_equal(kill_by_lock(path, who, sizeof who), 0); /* it is free */
    assert_string_equal(who, "");
    assert_int_equal(death_of(other), SIGTERM);
}

/* Processes of the session that have closed the lock are killed, too. */
static void a_session_is_killed_whole(void **state)
{
    pid_t holder, other;
    int member, found;
    char who[160];

    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans become children of this process */
    holder = start("holder", true, &member);
    other = start("other", false, NULL);
    write_session(holder);
    assert_int_equal(lock_session(path), holder);
    found = kill_by_lock(path, who, sizeof who);
    assert_int_equal(death_of(holder), SIGKILL);
    assert_int_equal(death_of(member), SIGKILL); /* a child of this process only after its parent is gone */
    assert_int_equal(death_of(other), SIGTERM);
    assert_int_equal(found, 2);
}

/* If the file holds no usable number, only the holder of the lock is killed. */
static void numbers_of_no_session(void **state)
{
    static const char *const texts[] = { "", "0\n", "1\n", "-1\n", "what\n" };
    char who[160];

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *f = fopen(path, "we");
        pid_t holder;

        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        assert_int_equal(lock_session(path), 0);
        holder = start("holder", true, NULL);
        assert_int_equal(kill_by_lock(path, who, sizeof who), 1);
        assert_int_equal(death_of(holder), SIGKILL);
    }
}

static void free_or_held(void **state)
{
    char below[sizeof path + 8];
    pid_t holder;
    int fd;

    (void)state;
    assert_int_equal(lock_try("/no/such/file", &fd), 1);
    assert_int_equal(fd, -1);
    assert_int_equal(lock_session("/no/such/file"), 0);
    assert_int_equal(lock_try("/", &fd), 1); /* a folder was never locked: no process to wait for */
    assert_int_equal(fd, -1);
    snprintf(below, sizeof below, "%s/below", path);
    assert_int_equal(lock_try(below, &fd), 1);
    holder = start("holder", true, NULL);
    assert_int_equal(lock_try(path, &fd), 0);
    close(fd);
    assert_int_equal(death_of(holder), SIGTERM);
    assert_int_equal(lock_try(path, &fd), 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stale_number_kills_nobody, make_file, remove_file),
        cmocka_unit_test_setup_teardown(a_session_is_killed_whole, make_file, remove_file),
        cmocka_unit_test_setup_teardown(numbers_of_no_session, make_file, remove_file),
        cmocka_unit_test_setup_teardown(free_or_held, make_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
