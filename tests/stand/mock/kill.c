/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/kill.c - preloaded into detd or detd-job, it makes
 * processes that survive SIGKILL, like a process in uninterruptible sleep: while the folder $FAULTS has a file "kill",
 * the program's own SIGKILLs are not sent. Built by the tests that need it; nothing else is linked with it. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int is_lost(int number)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/kill", getenv("FAULTS"));
    return number == SIGKILL && access(path, F_OK) == 0;
}

int kill(pid_t pid, int number)
{
    int (*real)(pid_t, int) = (int (*)(pid_t, int))dlsym(RTLD_NEXT, "kill");

    return is_lost(number) ? 0 : real(pid, number);
}

int pidfd_send_signal(int fd, int number, siginfo_t *info, unsigned flags)
{
    int (*real)(int, int, siginfo_t *, unsigned) = (int (*)(int, int, siginfo_t *, unsigned))dlsym(RTLD_NEXT, "pidfd_send_signal");

    return is_lost(number) ? 0 : real(fd, number, info, flags);
}
