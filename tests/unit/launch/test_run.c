/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/launch/test_run.c - uses: proto launch
 * The time limits of children: to execute a program, or to clear a folder. Children that their user traces, and
 * children that a job has borne for detd-launch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/run.h"
#include "proto/report.h"

enum { SLOW, QUICK, CLEARS, CHILDREN };

static int status[CHILDREN];
static char text[CHILDREN][LAUNCH_TEXT];

static void exited(const struct run *r, bool gone)
{
    (void)gone;
    status[r->number] = r->status;
    snprintf(text[r->number], LAUNCH_TEXT, "%s", r->text);
}

/* QUICK executes its program at once, and the others never do. Returns the child. */
static pid_t begin(int which)
{
    int begun[2], trouble = memfd_create("trouble", MFD_CLOEXEC);
    pid_t pid;

    assert_int_equal(pipe2(begun, O_CLOEXEC | O_NONBLOCK), 0);
    pid = fork();
    if (pid == 0 && which == QUICK)
        execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    while (pid == 0)
        pause();
    close(begun[1]);
    if (which == CLEARS)
        close(begun[0]);
    assert_int_equal(
        run_add(&(struct launch_ticket){ .job = which + 1, .store = "s" }, which, pid, trouble, which == CLEARS ? -1 : begun[0], 1), 0);
    return pid;
}

static void look_until_it_ends(int which)
{
    for (int i = 0; i < 3000 && status[which] < 0; i++) {
        run_look(exited);
        usleep(10000);
    }
    assert_int_equal(status[which], 128 + SIGKILL);
}

static void who_takes_too_long_is_killed(void **state)
{
    pid_t quick = 0;

    (void)state;
    memset(status, -1, sizeof status);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = begin(i);

        quick = i == QUICK ? pid : quick;
    }
    for (int i = 0; i < 3000 && (status[SLOW] < 0 || status[CLEARS] < 0); i++) {
        assert_true(run_any_left());
        run_look(exited);
        usleep(10000);
    }
    assert_int_equal(status[SLOW], SUP_EXIT_REFUSED); /* a shortage of the node */
    assert_non_null(strstr(text[SLOW], "was not executed in time"));
    assert_int_equal(status[CLEARS], 128 + SIGKILL);
    assert_false(run_any_left());
    assert_int_equal(status[QUICK], -1);
    assert_int_equal(kill(quick, SIGKILL), 0);
    look_until_it_ends(QUICK);
}

/* A process that lets whoever wants to trace it. */
static pid_t sleeper(void)
{
    int ready[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 0);
    close(ready[0]);
    return pid;
}

/* Returns a process that traces the other and never waits for it. */
static pid_t trace(pid_t traced)
{
    int ready[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (ptrace(PTRACE_SEIZE, traced, NULL, (void *)PTRACE_O_TRACEEXIT) < 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static const struct launch_ticket *ticket_of(uid_t user)
{
    static struct launch_ticket t;

    t = (struct launch_ticket){ .uid = user, .job = 1 + (int)user, .store = "s", .seal = { 1 + (user & 0x7f) } };
    return &t;
}

static void a_tracer_keeps_no_killed_child(void **state)
{
    pid_t pid = sleeper(), tracer = trace(pid), above = trace(tracer);

    (void)state;
    memset(status, -1, sizeof status);
    assert_int_equal(run_add(ticket_of(getuid()), QUICK, pid, memfd_create("trouble", MFD_CLOEXEC), -1, 0), 0);
    run_kill(ticket_of(getuid()), true);
    look_until_it_ends(QUICK);
    for (int i = 0; i < 3000 && waitpid(above, NULL, WNOHANG) == 0; i++)
        usleep(10000);
    assert_int_equal(kill(above, 0), -1);
    waitpid(tracer, NULL, 0);
}

/* A debugger of root's may look at a user's job. */
static void a_tracer_of_another_user_stays(void **state)
{
    pid_t pid = sleeper(), tracer = trace(pid);

    (void)state;
    memset(status, -1, sizeof status);
    assert_int_equal(run_add(ticket_of(getuid() + 1), QUICK, pid, memfd_create("trouble", MFD_CLOEXEC), -1, 0), 0);
    run_kill(ticket_of(getuid() + 1), true);
    while (run_any_left()) {
        run_look(exited);
        usleep(10000);
    }
    assert_int_equal(status[QUICK], -1);
    assert_int_equal(kill(tracer, SIGKILL), 0);
    look_until_it_ends(QUICK);
}

static void children_that_nobody_has_started_are_reaped(void **state)
{
    pid_t pid = fork();
    siginfo_t info;

    (void)state;
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    run_look(exited);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tracer_keeps_no_killed_child),
        cmocka_unit_test(a_tracer_of_another_user_stays),
        cmocka_unit_test(children_that_nobody_has_started_are_reaped),
        cmocka_unit_test(who_takes_too_long_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
