/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/daemon/socket/test_gate.c - uses: proto daemon
 * Who takes a socket that is there already. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/socket/gate.h"
#include "proto/err.h"

static char folder[96], path[104]; /* as sun_path */

static int open_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/gate-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static int take(struct err *err)
{
    struct gate g = { .path = path, .private = true, .admin_gid = (gid_t)-1 };
    bool bound = false;
    int fd = gate_bind(&g, &bound, err);

    if (fd < 0)
        return fd;
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void a_socket_that_is_served_is_refused(void **state)
{
    struct err err = { 0 };
    int fd = take(&err);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(take(&err), ERR_STATE);
    close(fd);
    fd = take(&err); /* stale */
    assert_true(fd >= 0);
    close(fd);
}

/* A daemon that listens is killed while it starts a process. That process still has the socket open, and ends when the
 * pipe closes. */
static void play_a_killed_daemon(const int pipe[2])
{
    struct err err = { 0 };
    char byte = 0;
    int fd = take(&err);

    close(pipe[1]);
    if (fork() == 0)
        _exit(read(pipe[0], &byte, 1) == 0 && fd >= 0 ? 0 : 1);
    _exit(fd >= 0 ? 0 : 1);
}

static void what_a_dead_daemon_was_starting_serves_nobody(void **state)
{
    struct err err = { 0 };
    int hold[2], status, fd;
    pid_t pid;

    (void)state;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    assert_int_equal(pipe(hold), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        play_a_killed_daemon(hold);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    fd = take(&err);
    if (fd < 0)
        fail_msg("%s", err.msg);
    close(fd);
    close(hold[0]);
    close(hold[1]);
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_socket_that_is_served_is_refused, open_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_a_dead_daemon_was_starting_serves_nobody, open_folder, remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
