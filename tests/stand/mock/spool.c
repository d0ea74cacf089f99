/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/spool.c - preloaded into detd-job, it plays the disk under
 * its spool. Files in the folder $FAULTS control it: with "full", a write to the spool finds no room; with "broken", it
 * fails; with "slow", a sync of it waits, and makes a file "syncing". Built by the tests that need it; nothing else is
 * linked with it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path_of(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", getenv("FAULTS"), name);
    return path;
}

static int is_there(const char *name)
{
    char path[4096];

    return access(path_of(name, path, sizeof path), F_OK) == 0;
}

static void make(const char *name)
{
    char path[4096];

    close(open(path_of(name, path, sizeof path), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static int is_spool(int fd)
{
    char link[64], path[4096] = "";
    const char *name;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) < 0)
        return 0;
    name = strrchr(path, '/');
    return name && strncmp(name, "/spool.", 7) == 0;
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");

    if (is_spool(fd) && (is_there("full") || is_there("broken"))) {
        errno = is_there("full") ? ENOSPC : EIO;
        return -1;
    }
    return real(fd, bytes, len, at);
}

int fdatasync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");

    if (is_spool(fd) && is_there("slow"))
        make("syncing");
    while (is_spool(fd) && is_there("slow"))
        usleep(5000);
    return real(fd);
}
