/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/launch/test_lock_holder.c - uses: proto daemon
 * The process that is named when a lock is unexpectedly held. */
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

#include "daemon/launch/lock_holder.h"
#include "tests/unit/proto/host/lock_file.h"

/* Starts a child in a session of its own. It has that name when this returns. fd: the descriptor that is locked, which
 * only the child keeps; -1: the child locks the file. */
static pid_t start(const char *name, int fd)
{
    int ready[2];
    char byte = 0;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        setsid();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        if (fd < 0 && flock(open(path, O_RDWR | O_CLOEXEC), LOCK_EX | LOCK_NB) < 0)
            _exit(1);
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    if (fd >= 0)
        close(fd);
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void write_session(long session)
{
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fprintf(f, "%ld\n", session);
    fclose(f);
}

static void assert_names(pid_t pid, const char *name)
{
    char who[128], want[128];

    snprintf(want, sizeof want, "process %d (%s)", (int)pid, name);
    assert_true(lock_holder(path, who, sizeof who));
    assert_string_equal(who, want);
}

static void assert_nobody(void)
{
    char who[128];

    assert_false(lock_holder(path, who, sizeof who));
}

/* The number in the file does not matter. */
static void who_has_taken_it(void **state)
{
    pid_t other = start("other", open("/dev/null", O_RDONLY)), holder;

    (void)state;
    assert_nobody();
    holder = start("holder", -1);
    write_session(other);
    assert_names(holder, "holder");
    stop(holder);
    assert_nobody();
    stop(other);
}

/* A lock as of a supervisor that inherited it from detd. */
static void who_was_given_it(void **state)
{
    pid_t holder, other = start("other", open("/dev/null", O_RDONLY)); /* before the descriptor exists: it must not inherit it */
    int fd = open(path, O_RDWR | O_CLOEXEC);

    (void)state;
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    holder = start("given", fd);
    assert_nobody();
    write_session(other); /* by now another one's */
    assert_nobody();
    write_session(holder);
    assert_names(holder, "given");
    stop(holder);
    assert_nobody();
    stop(other);
    unlink(path);
    assert_nobody();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_has_taken_it, make_file, remove_file),
        cmocka_unit_test_setup_teardown(who_was_given_it, make_file, remove_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
