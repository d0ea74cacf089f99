#include "supervisor/notify.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/host/clock.h"
#include "proto/err.h"
#include "proto/host/tasks.h"
#include "supervisor/ranks/left.h"
#include "supervisor/spool/outcome.h"
#include "supervisor/ranks/spawn.h"

enum { LOOK_MS = 50 };

/* Everything from here to notify_start() runs after fork() in a program that has threads: no standard output, and only
 * memory that glibc makes usable again. */

static void put(const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(STDERR_FILENO, text, len);

        if (n <= 0)
            return;
        text += n;
        len -= (size_t)n;
    }
}

static void reset_signals(void)
{
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        if (i != SIGKILL && i != SIGSTOP)
            signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void become(const char *command, char *const *env, int in, int out)
{
    char *const argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };

    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0 &&
        close_range(STDERR_FILENO + 1, ~0U, 0) == 0)
        execve("/bin/sh", argv, env);
    _exit(127);
}

/* Passes on what comes out until nobody can say more, or the time is up. */
static void listen_to(int out, int64_t deadline)
{
    char text[1024];
    size_t left = NOTIFY_OUTPUT;

    for (;;) {
        struct pollfd p = { .fd = out, .events = POLLIN };
        int64_t rest = deadline - clock_ms();
        ssize_t n;

        if (rest <= 0 || poll(&p, 1, (int)rest) == 0)
            return;
        n = read(out, text, sizeof text);
        if (n <= 0)
            return;
        put(text, (size_t)n < left ? (size_t)n : left);
        left -= (size_t)n < left ? (size_t)n : left;
    }
}

static bool has_ended(pid_t pid, int64_t deadline, int *ret_status)
{
    while (waitpid(pid, ret_status, WNOHANG) == 0) {
        if (clock_ms() >= deadline)
            return false;
        poll(NULL, 0, LOOK_MS);
    }
    return true;
}

static void say(const char *how)
{
    char text[OUTCOME_TEXT];

    snprintf(text, sizeof text, "detd-job: run.on_end: the command %s\n", how);
    put(text, strlen(text));
}

static _Noreturn void watch_over(const char *command, char *const *env, const char *text, size_t len, int limit_ms)
{
    int in[2], out[2], status = 0;
    int64_t deadline = clock_ms() + limit_ms;
    char how[100], left[128];
    bool ended;
    pid_t pid;

    reset_signals();
    signal(SIGPIPE, SIG_IGN);
    spawn_go_first();
    setsid();
    prctl(PR_SET_NAME, "detd-on-end");
    left_adopt();
    close_range(STDERR_FILENO + 1, ~0U, 0); /* locks among them */
    if (pipe(in) < 0 || pipe(out) < 0 || write(in[1], text, len) < 0 || (pid = fork()) < 0) {
        say("cannot be started");
        _exit(1);
    }
    if (pid == 0)
        become(command, env, in[0], out[1]);
    setpgid(pid, pid); /* whoever is first */
    close(in[0]);
    close(in[1]);
    close(out[1]);
    listen_to(out[0], deadline);
    ended = has_ended(pid, deadline, &status);
    kill(-pid, SIGKILL);
    left_kill(left, sizeof left); /* behind, in a session of its own */
    if (!ended) {
        snprintf(how, sizeof how, "took more than %g s and was killed", limit_ms / 1000.0);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) < 128) {
        snprintf(how, sizeof how, "left with status %d", WEXITSTATUS(status));
    } else {
        outcome_describe(status, how, sizeof how);
    }
    say(how);
    _exit(0);
}

pid_t notify_start(const char *command, char *const *env, const char *text, size_t len, int limit_ms, struct err *err)
{
    sigset_t all, before;
    pid_t pid;

    if (len > NOTIFY_INPUT) /* a pipe holds so much before anybody reads */
        return err_set(err, -EMSGSIZE, "a message of %zu bytes is too long", len);
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before); /* a handler of ours must not run in the child */
    pid = fork();
    if (pid == 0)
        watch_over(command, env, text, len, limit_ms);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid < 0 ? err_set(err, -errno, "fork: %s", process_lacks(errno)) : pid;
}
