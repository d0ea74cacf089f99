#include "proto/host/lock.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* True if the file, or a folder above it, was removed or replaced by something that no job has ever locked. */
static bool nobody_has(int code)
{
    return code == ENOENT || code == EISDIR || code == ENOTDIR || code == ELOOP || code == ENXIO;
}

int lock_try(const char *path, int *ret_fd)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    *ret_fd = fd;
    if (fd < 0)
        return nobody_has(errno) ? 1 : -errno;
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : 0;
}

static long session_in(int fd)
{
    char text[32] = "";
    long session = pread(fd, text, sizeof text - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;

    return session > 1 ? session : 0;
}

long lock_session(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    long session;

    if (fd < 0)
        return 0;
    session = session_in(fd);
    close(fd);
    return session;
}

struct process {
    char name[64], state;
    long session; /* -1: unreadable */
};

/* Reads /proc/PID/stat. The second field, the name, may hold anything but ends at the last ')'. */
static void look_at(const char *pid, struct process *ret)
{
    char path[64], text[512], *open, *close;
    FILE *f;

    *ret = (struct process){ .session = -1 };
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(text, sizeof text, f) && (open = strchr(text, '(')) && (close = strrchr(text, ')')) &&
        sscanf(close + 1, " %c %*d %*d %ld", &ret->state, &ret->session) == 2) {
        *close = '\0';
        snprintf(ret->name, sizeof ret->name, "%s", open + 1);
    }
    fclose(f);
}

static bool is_locked_by(const char *pid, const char *fd)
{
    char path[96], line[160];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%.20s/fdinfo/%.20s", pid, fd);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f))
        found = strncmp(line, "lock:", 5) == 0 && strstr(line, "FLOCK");
    if (f)
        fclose(f);
    return found;
}

/* Descriptors without a lock are not followed: their files may lie on a disk that does not answer. */
bool lock_is_held_by(const char *pid, const struct stat *lock)
{
    char path[96];
    struct dirent *entry;
    struct stat st;
    bool found = false;
    DIR *fds;

    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    fds = opendir(path);
    while (fds && !found && (entry = readdir(fds))) {
        snprintf(path, sizeof path, "/proc/%.20s/fd/%.20s", pid, entry->d_name);
        found = is_locked_by(pid, entry->d_name) && stat(path, &st) == 0 && st.st_ino == lock->st_ino && st.st_dev == lock->st_dev;
    }
    if (fds)
        closedir(fds);
    return found;
}

/* The process is looked at after its pidfd was opened, so no other process can have got the number meanwhile. */
static bool kill_holder(const char *pid, long session, const struct stat *lock, struct process *ret)
{
    int fd = pidfd_open(atoi(pid), 0);
    bool found;

    if (fd < 0)
        return false;
    if (atoi(pid) == getpid()) { /* this process holds the lock while it removes remains of the job */
        close(fd);
        return false;
    }
    look_at(pid, ret);
    found = (session > 0 && ret->session == session) || lock_is_held_by(pid, lock);
    if (found && ret->state != 'Z')
        pidfd_send_signal(fd, SIGKILL, NULL, 0);
    close(fd);
    return found && ret->state != 'Z';
}

/* Whether a process of the session holds the lock. If not, the number in the file may be another session's by now. */
static bool is_of_session(DIR *proc, long session, const struct stat *lock)
{
    struct dirent *entry;
    bool found = false;

    while (!found && (entry = readdir(proc))) {
        struct process p;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        look_at(entry->d_name, &p);
        found = p.session == session && lock_is_held_by(entry->d_name, lock);
    }
    rewinddir(proc);
    return found;
}

int lock_kill(int lock, char *ret, size_t size)
{
    struct dirent *entry;
    struct stat st;
    int found = 0;
    long session = session_in(lock);
    DIR *proc = NULL;

    ret[0] = '\0';
    if (flock(lock, LOCK_EX | LOCK_NB) == 0)
        flock(lock, LOCK_UN);
    else if (fstat(lock, &st) == 0)
        proc = opendir("/proc");
    if (proc && session > 0 && !is_of_session(proc, session, &st))
        session = 0;
    while (proc && (entry = readdir(proc))) {
        struct process p;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' || !kill_holder(entry->d_name, session, &st, &p))
            continue;
        snprintf(ret, size, "process %.20s (%s, state %c)", entry->d_name, p.name, p.state);
        found++;
    }
    if (proc)
        closedir(proc);
    return found;
}
