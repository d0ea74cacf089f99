#include "launch/tracers.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { CHAIN_MAX = 16 };

/* The thread's line `key` of /proc/PID/status; -1: it is gone. */
static long status_of(pid_t thread, const char *key)
{
    char path[64], line[128], format[32];
    long found = -1;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
    snprintf(format, sizeof format, "%s: %%ld", key);
    f = fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f))
        sscanf(line, format, &found);
    if (f)
        fclose(f);
    return found;
}

/* The tracer is looked at after its pidfd was opened, so no other process can have got the number meanwhile. Only a
 * process of the same real user can have begun to trace. */
static pid_t kill_tracer(pid_t thread, uid_t user)
{
    pid_t tracer = (pid_t)status_of(thread, "TracerPid"), process = tracer > 1 ? (pid_t)status_of(tracer, "Tgid") : -1;
    int fd = process > 1 ? pidfd_open(process, 0) : -1;
    bool is_users = fd >= 0 && status_of(thread, "TracerPid") == tracer && status_of(tracer, "Tgid") == process &&
                    status_of(process, "Uid") == (long)user;

    if (is_users)
        pidfd_send_signal(fd, SIGKILL, NULL, 0);
    if (fd >= 0)
        close(fd);
    return is_users ? tracer : 0;
}

void tracers_kill(pid_t thread, uid_t user)
{
    for (int i = 0; thread > 0 && i < CHAIN_MAX; i++)
        thread = kill_tracer(thread, user);
}
