/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/mock/disk.c - preloaded, it records the operations of a process
 * on the files below $DISK_ROOT, and its messages on sockets, in the file $DISK_LOG. From this log a test computes the
 * states of the disk that a loss of power can leave. A record is one line, followed by as many bytes as the line
 * states:
 *
 *     PROGRAM PID WHAT INODE OFFSET LENGTH PATH [TAB PATH]
 *
 * An operation is recorded after it was done, a message before it is sent, and a sync twice: "sync" before it, "synced"
 * after. So the order of the records is the order of events, in all cases that matter. PATH is absolute. Writes by
 * stdio are not seen: a file that is synced without a recorded write is recorded as a "whole". Built by the test that
 * needs it; nothing else is linked with it. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FDS = 1024, PARTS = 64, LINE = 2 * PATH_MAX + 256 };

static bool written[FDS]; /* through the descriptor, seen by us */

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);

    if (!p)
        abort();
    return p;
}

/* ---- the log ---- */

static int log_fd(void)
{
    static int fd = -2;
    const char *path = getenv("DISK_LOG");

    if (fd == -2)
        fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0) : -1;
    if (fd >= 0 && fd < FDS / 2) /* out of the way of the numbers that a program wants */
        fd = fcntl(fd, F_DUPFD_CLOEXEC, FDS / 2);
    return fd;
}

static bool is_below(const char *path)
{
    const char *root = getenv("DISK_ROOT");
    size_t n = root ? strlen(root) : 0;

    return n > 0 && strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static void note(const char *what, unsigned long long inode, long long offset, const struct iovec *data, int parts, const char *path,
                 const char *to)
{
    struct iovec all[PARTS + 1];
    char line[LINE];
    size_t len = 0;
    int n, saved = errno;

    if (log_fd() < 0)
        return;
    if (parts > PARTS)
        abort();
    for (int i = 0; i < parts; i++) {
        all[i + 1] = data[i];
        len += data[i].iov_len;
    }
    n = snprintf(line, sizeof line, "%s %d %s %llu %lld %zu %s%s%s\n", program_invocation_short_name, (int)getpid(), what, inode, offset,
                 len, path, to[0] ? "\t" : "", to);
    all[0] = (struct iovec){ line, (size_t)n };
    if (syscall(SYS_writev, log_fd(), all, parts + 1) != (ssize_t)(len + (size_t)n))
        abort();
    errno = saved;
}

/* A file or folder below the root: its path. The inode is 0 for anything else. */
static unsigned long long tracked(int fd, char path[PATH_MAX])
{
    char link[64];
    struct stat st;
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = log_fd() < 0 || fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) ? -1 : readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = '\0';
    return n > 0 && is_below(path) ? st.st_ino : 0;
}

static bool is_socket(int fd)
{
    struct stat st;

    return log_fd() >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* The name as an absolute one. */
static void absolute(int dir, const char *name, char ret[PATH_MAX])
{
    char link[64], base[PATH_MAX / 2] = "";
    ssize_t n;

    if (name[0] != '/') {
        snprintf(link, sizeof link, dir == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", dir);
        n = readlink(link, base, sizeof base - 1);
        base[n < 0 ? 0 : n] = '\0';
    }
    snprintf(ret, PATH_MAX, "%s%s%s", base, base[0] ? "/" : "", name);
}

static unsigned long long inode_of(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static void said(int fd, const struct iovec *data, int parts)
{
    if (is_socket(fd))
        note("say", 0, fd, data, parts, "-", "");
}

/* ---- data ---- */

static void noted_write(const char *what, int fd, const struct iovec *data, int parts, long long at, ssize_t done)
{
    char path[PATH_MAX];
    unsigned long long inode = done > 0 ? tracked(fd, path) : 0;
    struct iovec some[PARTS];
    size_t left = done > 0 ? (size_t)done : 0;
    int n = 0;

    for (; n < parts && n < PARTS && left > 0; n++) {
        some[n] = data[n];
        if (some[n].iov_len > left)
            some[n].iov_len = left;
        left -= some[n].iov_len;
    }
    if (inode == 0)
        return;
    if (fd < FDS)
        written[fd] = true;
    note(what, inode, at, some, n, path, "");
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    ssize_t done = REAL(pwrite)(fd, data, n, at);

    noted_write("write", fd, &(struct iovec){ (void *)data, n }, 1, at, done);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return pwrite(fd, data, n, at);
}

/* The write began at the file's earlier position, unless it appends. */
static ssize_t stream_write(int fd, const struct iovec *data, int parts)
{
    ssize_t done;

    said(fd, data, parts);
    done = REAL(writev)(fd, data, parts);
    if (done > 0 && log_fd() >= 0)
        noted_write("write", fd, data, parts, (long long)lseek(fd, 0, SEEK_CUR) - done, done);
    return done;
}

ssize_t write(int fd, const void *data, size_t n)
{
    return stream_write(fd, &(struct iovec){ (void *)data, n }, 1);
}

ssize_t writev(int fd, const struct iovec *data, int parts)
{
    return stream_write(fd, data, parts);
}

static int truncated(int fd, off_t size, int rc)
{
    char path[PATH_MAX];
    unsigned long long inode = rc == 0 ? tracked(fd, path) : 0;

    if (inode)
        note("truncate", inode, size, NULL, 0, path, "");
    return rc;
}

int ftruncate(int fd, off_t size)
{
    return truncated(fd, size, REAL(ftruncate)(fd, size));
}

int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    int rc = REAL(posix_fallocate)(fd, at, size);
    char path[PATH_MAX];
    unsigned long long inode = rc == 0 ? tracked(fd, path) : 0;

    if (inode)
        note("allocate", inode, at + size, NULL, 0, path, "");
    return rc;
}

/* ---- syncs ---- */

static void note_whole(int fd, unsigned long long inode, const char *path)
{
    struct stat st;
    void *data;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (fd < FDS && written[fd]))
        return;
    data = malloc((size_t)st.st_size + 1);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0); /* the descriptor may be for writing only */
    if (!data || fd < 0 || pread(fd, data, (size_t)st.st_size, 0) != st.st_size)
        abort();
    close(fd);
    note("whole", inode, 0, &(struct iovec){ data, (size_t)st.st_size }, 1, path, "");
    free(data);
}

static int sync_one(int fd, int (*sync)(int))
{
    char path[PATH_MAX];
    unsigned long long inode = tracked(fd, path);
    int rc;

    if (inode == 0)
        return sync(fd);
    note_whole(fd, inode, path);
    note("sync", inode, 0, NULL, 0, path, "");
    rc = sync(fd);
    if (rc == 0)
        note("synced", inode, 0, NULL, 0, path, "");
    return rc;
}

int fsync(int fd)
{
    return sync_one(fd, REAL(fsync));
}

int fdatasync(int fd)
{
    return sync_one(fd, REAL(fdatasync));
}

/* ---- names ---- */

static int open_in(int dir, const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    bool new;
    int fd;

    absolute(dir, name, path);
    new = (flags & O_CREAT) && is_below(path) && inode_of(path) == 0;
    fd = (int)syscall(SYS_openat, dir, name, flags, mode);
    if (fd >= 0 && fd < FDS)
        written[fd] = false;
    if (fd >= 0 && new)
        note("create", inode_of(path), 0, NULL, 0, path, "");
    else if (fd >= 0 && (flags & O_TRUNC) && is_below(path))
        truncated(fd, 0, 0);
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;
}

#define OPEN(name)                                               \
    int name(const char *path, int flags, ...)                   \
    {                                                            \
        va_list ap;                                              \
        int fd;                                                  \
                                                                 \
        va_start(ap, flags);                                     \
        fd = open_in(AT_FDCWD, path, flags, mode_of(flags, ap)); \
        va_end(ap);                                              \
        return fd;                                               \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                        \
    int name(int dir, const char *path, int flags, ...)     \
    {                                                       \
        va_list ap;                                         \
        int fd;                                             \
                                                            \
        va_start(ap, flags);                                \
        fd = open_in(dir, path, flags, mode_of(flags, ap)); \
        va_end(ap);                                         \
        return fd;                                          \
    }
OPENAT(openat)
OPENAT(openat64)

static int named(const char *what, int dir, const char *name, int rc)
{
    char path[PATH_MAX];

    absolute(dir, name, path);
    if (rc == 0 && is_below(path))
        note(what, inode_of(path), 0, NULL, 0, path, "");
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return named("mkdir", AT_FDCWD, path, REAL(mkdir)(path, mode));
}

/* A link is whole from the start: its number is that of the link itself, its data the name that it leads to. */
int symlink(const char *to, const char *path)
{
    char link[PATH_MAX];
    struct stat st;
    int rc = REAL(symlink)(to, path);

    absolute(AT_FDCWD, path, link);
    if (rc == 0 && is_below(link) && lstat(link, &st) == 0)
        note("link", st.st_ino, 0, &(struct iovec){ (void *)to, strlen(to) }, 1, link, "");
    return rc;
}

int unlink(const char *path)
{
    return named("remove", AT_FDCWD, path, REAL(unlink)(path));
}

int rmdir(const char *path)
{
    return named("remove", AT_FDCWD, path, REAL(rmdir)(path));
}

int unlinkat(int dir, const char *path, int flags)
{
    return named("remove", dir, path, REAL(unlinkat)(dir, path, flags));
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    char old[PATH_MAX], new[PATH_MAX];
    int rc = REAL(renameat)(from_dir, from, to_dir, to);

    absolute(from_dir, from, old);
    absolute(to_dir, to, new);
    if (rc == 0 && is_below(new))
        note("rename", inode_of(new), 0, NULL, 0, old, new);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* ---- messages ---- */

ssize_t send(int fd, const void *data, size_t n, int flags)
{
    said(fd, &(struct iovec){ (void *)data, n }, 1);
    return REAL(send)(fd, data, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    said(fd, msg->msg_iov, (int)msg->msg_iovlen);
    return REAL(sendmsg)(fd, msg, flags);
}
