/* SPDX-License-Identifier: Apache-2.0 */ /* tests/unit/supervisor/test_notify.c - uses: proto supervisor
 * The command of a notification: how it is started, limited and ended. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "proto/err.h"
#include "supervisor/notify.h"
#include "tests/stand/harness.h"

enum { LONG_MS = 60000, SHORT_MS = 300 };

static char *const env[] = { (char *)"PATH=/usr/bin:/bin", (char *)"WORD=spoken", NULL };
static char said[4 * NOTIFY_OUTPUT];

/* Returns the command's output on our standard error. The command must have ended. */
static const char *run(const char *command, const char *text, int limit_ms)
{
    char path[TEMP_MAX];
    int fd = mkstemp(temp_path(path, sizeof path, "detd-notify-XXXXXX")), err_fd = dup(STDERR_FILENO), status;
    struct err err = { 0 };
    ssize_t n;
    pid_t pid;

    assert_true(fd >= 0 && err_fd >= 0);
    unlink(path);
    dup2(fd, STDERR_FILENO);
    pid = notify_start(command, env, text, strlen(text), limit_ms, &err);
    dup2(err_fd, STDERR_FILENO);
    close(err_fd);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    n = pread(fd, said, sizeof said - 1, 0);
    assert_true(n >= 0);
    said[n] = '\0';
    close(fd);
    return said;
}

static void it_hears_and_says(void **state)
{
    (void)state;
    assert_string_equal(run("cat; echo $WORD >&2; exit 3", "a line\n", LONG_MS),
                        "a line\nspoken\ndetd-job: run.on_end: the command left with status 3\n");
    assert_string_equal(run("true", "nobody reads it\n", LONG_MS), "detd-job: run.on_end: the command left with status 0\n");
    assert_string_equal(run("kill -USR1 $$", "", LONG_MS),
                        "detd-job: run.on_end: the command was killed by signal 10 (User defined signal 1)\n");
    assert_string_equal(run("exec >&- 2>&-; sleep 0.2; exit 4", "", LONG_MS), "detd-job: run.on_end: the command left with status 4\n");
}

static void a_long_message(void **state)
{
    static char text[NOTIFY_INPUT + 2];
    struct err err = { 0 };

    (void)state;
    memset(text, 'x', NOTIFY_INPUT);
    assert_string_equal(run("wc -c", text, LONG_MS), "16384\ndetd-job: run.on_end: the command left with status 0\n");
    text[NOTIFY_INPUT] = 'x';
    assert_int_equal(notify_start("true", env, text, sizeof text - 1, LONG_MS, &err), -90);
    assert_string_equal(err.msg, "a message of 16385 bytes is too long");
}

static void time_is_bounded(void **state)
{
    (void)state;
    assert_string_equal(run("sleep 1000", "", SHORT_MS), "detd-job: run.on_end: the command took more than 0.3 s and was killed\n");
    assert_string_equal(run("exec >&- 2>&-; trap '' TERM; sleep 1000; sleep 1000", "", SHORT_MS),
                        "detd-job: run.on_end: the command took more than 0.3 s and was killed\n");
}

static void output_is_bounded(void **state)
{
    static const char last[] = "detd-job: run.on_end: the command left with status 0\n";
    const char *all = run("yes | head -c 1000000", "", LONG_MS);

    (void)state;
    assert_int_equal(strlen(all), NOTIFY_OUTPUT + sizeof last - 1);
    assert_string_equal(all + NOTIFY_OUTPUT, last);
}

/* A process that the command leaves behind delays us no longer than the limit, and is killed then. It must not have our
 * descriptors. */
static void nothing_is_left_behind(void **state)
{
    char path[TEMP_MAX], command[2 * TEMP_MAX + 120], c;
    int fifo, ours = dup(STDIN_FILENO); /* not closed on exec */

    (void)state;
    fifo = mkstemp(temp_path(path, sizeof path, "detd-notify-XXXXXX"));
    close(fifo);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    fifo = open(path, O_RDONLY | O_NONBLOCK);
    fcntl(fifo, F_SETFL, 0);
    snprintf(command, sizeof command, "test -e /proc/self/fd/%d && echo has it; sleep 1000 9> %s & setsid sleep 1001 9> %s &", ours, path,
             path);
    assert_string_equal(run(command, "", SHORT_MS), "detd-job: run.on_end: the command left with status 0\n");
    alarm(60);
    assert_int_equal(read(fifo, &c, 1), 0); /* its last writer is gone */
    alarm(0);
    close(ours);
    close(fifo);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_hears_and_says), cmocka_unit_test(a_long_message),         cmocka_unit_test(time_is_bounded),
        cmocka_unit_test(output_is_bounded), cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
