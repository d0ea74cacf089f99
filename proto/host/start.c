#include "proto/host/start.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES_MIN = 64 };

static void give_up(const char *what)
{
    dprintf(STDERR_FILENO, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    _exit(1);
}

/* Opens the root folder if there is no /dev. Writing to either fails. */
static int open_nothing(void)
{
    int fd = open("/dev/null", O_RDONLY);

    return fd >= 0 ? fd : open("/", O_RDONLY | O_DIRECTORY);
}

static void open_missing(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open_nothing() < 0) /* it gets the lowest free number, which is fd */
            give_up("open '/dev/null' in place of a standard descriptor that is closed");
}

static bool stays_ignored(int sig)
{
    static const int stops[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU };

    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (sig == stops[i])
            return true;
    return false;
}

static void reset_signals(void)
{
    struct sigaction now;
    sigset_t none;

    for (int sig = 1; sig < NSIG; sig++)
        if (!stays_ignored(sig) && sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            signal(sig, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* libuv ends the process if its own few descriptors cannot be opened. */
static void check_open_files(void)
{
    struct rlimit most;

    if (getrlimit(RLIMIT_NOFILE, &most) < 0 || most.rlim_cur >= FILES_MIN)
        return;
    most.rlim_cur = most.rlim_max < FILES_MIN ? most.rlim_max : FILES_MIN;
    if (most.rlim_cur >= FILES_MIN && setrlimit(RLIMIT_NOFILE, &most) == 0)
        return;
    dprintf(STDERR_FILENO, "%s: the limit of open files (ulimit -n) is %lld; at least %d are needed\n", program_invocation_short_name,
            (long long)most.rlim_max, FILES_MIN);
    _exit(1);
}

void start_tool(void)
{
    open_missing();
    reset_signals();
}

void start_service(void)
{
    start_tool();
    signal(SIGPIPE, SIG_IGN);
    check_open_files();
    if (close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        give_up("mark inherited descriptors");
}
