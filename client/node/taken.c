#include "client/node/taken.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/err.h"

enum { BLOCK = 512, DEPTH_MAX = 100 /* a descriptor each */ };

static void count(struct taken *t, const struct stat *st)
{
    int i = 0;

    while (i < t->count && t->by[i].uid != st->st_uid)
        i++;
    if (i == TAKEN_USERS)
        return;
    t->by[i].uid = st->st_uid;
    t->by[i].bytes += (double)st->st_blocks * BLOCK;
    t->count += i == t->count;
}

static bool walk(int folder, dev_t disk, int depth, struct taken *t);

/* A file that is removed meanwhile is no reason to say that something is missing. */
static bool look(int folder, const char *name, dev_t disk, int depth, struct taken *t)
{
    struct stat st;
    int fd;

    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    if (st.st_dev != disk)
        return true;
    count(t, &st);
    if (!S_ISDIR(st.st_mode))
        return true;
    if (depth == DEPTH_MAX)
        return false;
    fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? errno == ENOENT : walk(fd, disk, depth + 1, t);
}

/* Takes the descriptor. */
static bool walk(int folder, dev_t disk, int depth, struct taken *t)
{
    DIR *dir = fdopendir(folder);
    const struct dirent *e;
    bool whole = true;

    if (!dir) {
        close(folder);
        return false;
    }
    while ((e = readdir(dir)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            whole = look(folder, e->d_name, disk, depth, t) && whole;
    closedir(dir);
    return whole;
}

static bool walk_all(const char *folder, struct taken *t)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return false;
    count(t, &st);
    return walk(fd, st.st_dev, 0, t);
}

static int by_bytes(const void *a, const void *b)
{
    const struct taken_by *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

/* A child in a call that nothing ends is left to the kernel. */
static bool has_ended_well(pid_t child, int seconds)
{
    struct pollfd left = { .fd = pidfd_open(child, 0), .events = POLLIN };
    int status = 1;

    poll(&left, 1, seconds * 1000);
    kill(child, SIGKILL);
    poll(&left, 1, 1000);
    if (left.fd >= 0)
        close(left.fd);
    return waitpid(child, &status, WNOHANG) == child && status == 0;
}

int taken_below(const char *folder, int seconds, struct taken *ret, struct err *err)
{
    struct taken *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child;

    if (t == MAP_FAILED)
        return err_sys(err, "memory");
    child = fork();
    if (child == 0)
        _exit(!walk_all(folder, t));
    if (child < 0) {
        munmap(t, sizeof *t);
        return err_sys(err, "start a process");
    }
    t->whole = has_ended_well(child, seconds);
    *ret = *t;
    munmap(t, sizeof *t);
    qsort(ret->by, (size_t)ret->count, sizeof *ret->by, by_bytes);
    return 0;
}
