#include "client/node/taken.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 512, DEPTH_MAX = 100 /* a descriptor each */ };

struct walk {
    struct taken *t;
    struct statx top;
    struct timespec end;
};

static bool is_over(const struct walk *w)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec >= w->end.tv_sec;
}

static void count(struct taken *t, const struct statx *st)
{
    int i = 0;

    while (i < t->count && t->by[i].uid != st->stx_uid)
        i++;
    if (i == TAKEN_USERS)
        return;
    t->by[i].uid = st->stx_uid;
    t->by[i].bytes += (double)st->stx_blocks * BLOCK;
    t->count += i == t->count;
}

/* Also for a root of a mount: the kernel answers from its memory. */
static int look(int folder, const char *name, struct statx *ret)
{
    return statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_UID | STATX_BLOCKS, ret);
}

static bool walk(const struct walk *w, int folder, int depth);

/* A file that is removed meanwhile is no reason to say that something is missing. */
static bool add(const struct walk *w, int folder, const char *name, int depth)
{
    struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV };
    struct statx st;
    int fd;

    if (look(folder, name, &st) < 0)
        return errno == ENOENT;
    if (st.stx_dev_major != w->top.stx_dev_major || st.stx_dev_minor != w->top.stx_dev_minor)
        return true;
    count(w->t, &st);
    if (!S_ISDIR(st.stx_mode))
        return true;
    if (depth == DEPTH_MAX || is_over(w))
        return false;
    fd = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
    return fd < 0 ? errno == ENOENT : walk(w, fd, depth + 1);
}

/* Takes the descriptor. */
static bool walk(const struct walk *w, int folder, int depth)
{
    DIR *dir = fdopendir(folder);
    const struct dirent *e;
    bool whole = true;

    if (!dir) {
        close(folder);
        return false;
    }
    while (!is_over(w) && (e = readdir(dir)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            whole = add(w, folder, e->d_name, depth) && whole;
    closedir(dir);
    return whole && !is_over(w);
}

static int by_bytes(const void *a, const void *b)
{
    const struct taken_by *x = a, *y = b;

    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

bool taken_below(const char *folder, int seconds, struct taken *ret)
{
    struct walk w = { .t = ret };
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool whole;

    *ret = (struct taken){ 0 };
    clock_gettime(CLOCK_MONOTONIC, &w.end);
    w.end.tv_sec += seconds;
    if (fd < 0 || look(fd, ".", &w.top) < 0)
        return false;
    count(ret, &w.top);
    whole = walk(&w, fd, 0);
    qsort(ret->by, (size_t)ret->count, sizeof *ret->by, by_bytes);
    return whole;
}
