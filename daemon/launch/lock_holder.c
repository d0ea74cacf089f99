#include "daemon/launch/lock_holder.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/host/lock.h"

/* The process that took the lock. It may have handed the lock on, and be gone. 0: it is not listed. */
static long taker(const struct stat *lock)
{
    FILE *f = fopen("/proc/locks", "re");
    unsigned long ino;
    char line[160];
    long pid, found = 0;

    while (f && !found && fgets(line, sizeof line, f))
        if (sscanf(line, "%*d: FLOCK %*s %*s %ld %*x:%*x:%lu", &pid, &ino) == 2 && ino == lock->st_ino)
            found = pid;
    if (f)
        fclose(f);
    return found;
}

/* A process of the session that has the lock. The lock is checked too: the number may be another session's by now. */
static long member(long session, const struct stat *lock)
{
    DIR *proc = session > 0 ? opendir("/proc") : NULL;
    struct dirent *entry;
    long found = 0;

    while (proc && !found && (entry = readdir(proc))) {
        long pid = strtol(entry->d_name, NULL, 10);

        if (pid > 0 && getsid((pid_t)pid) == session && lock_is_held_by(entry->d_name, lock))
            found = pid;
    }
    if (proc)
        closedir(proc);
    return found;
}

static void name(long pid, char *ret, size_t size)
{
    char path[64], comm[64] = "";
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/comm", pid);
    f = fopen(path, "re");
    if (f && fgets(comm, sizeof comm, f))
        comm[strcspn(comm, "\n")] = '\0';
    if (f)
        fclose(f);
    snprintf(ret, size, "process %ld (%s)", pid, comm);
}

bool lock_holder(const char *path, char *ret, size_t size)
{
    struct stat lock;
    long pid;

    if (stat(path, &lock) < 0)
        return false;
    pid = taker(&lock);
    if (pid == getpid() || (pid > 0 && kill((pid_t)pid, 0) < 0 && errno == ESRCH)) /* the lock was handed on to a supervisor */
        pid = 0;
    if (pid == 0)
        pid = member(lock_session(path), &lock);
    if (pid > 0)
        name(pid, ret, size);
    return pid > 0;
}
