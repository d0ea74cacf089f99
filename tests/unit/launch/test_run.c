/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/launch/test_run.c - uses: proto launch
 * The time limits of children: to execute a program, or to clear a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
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
    for (int i = 0; i < 3000 && status[QUICK] < 0; i++) {
        run_look(exited);
        usleep(10000);
    }
    assert_int_equal(status[QUICK], 128 + SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_takes_too_long_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
