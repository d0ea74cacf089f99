#include "proto/host/gpulock.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "proto/err.h"

enum { UUID_MAX = 80, PATH_ROOM = 4096 + 128, LINE_ROOM = 256, TRIES = 5 };

/* ---- files ---- */

/* The folder's mode decides, not the user's own rights, so that all users come to the same folder. */
static const char *shared_folder(void)
{
    static const mode_t shared = S_ISVTX | S_IWOTH | S_IXOTH;
    struct stat st;

    return stat("/run/lock", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & shared) == shared ? "/run/lock" : "/tmp";
}

struct place {
    char own[PATH_ROOM], other[PATH_ROOM]; /* this daemon's lock, and the other kind of daemon's */
};

static int find_place(const struct gpulocks *l, const char *uuid, struct place *ret, struct err *err)
{
    size_t n = strspn(uuid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");

    if (n == 0 || n > UUID_MAX || uuid[n])
        return err_set(err, ERR_INPUT, "'%.80s' is no UUID of a GPU", uuid);
    snprintf(l->own ? ret->other : ret->own, PATH_ROOM, "%s/detd-%s.lock", shared_folder(), uuid);
    if (snprintf(l->own ? ret->own : ret->other, PATH_ROOM, "%s/%s.lock", l->system, uuid) >= PATH_ROOM)
        return err_set(err, -ENAMETOOLONG, "'%.200s': the path is too long", l->system);
    return 0;
}

/* A user that may write into the folder could replace a lock, and a user that may open a lock could keep it. */
static int check_folder(const char *folder, struct err *err)
{
    struct stat st;

    if (stat(folder, &st) < 0)
        return err_sys(err, "the folder '%s' of locks of GPUs", folder);
    if (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(err, -EPERM, "'%s', for locks of GPUs, is no folder that only detd may write", folder);
    return 0;
}

/* In a sticky folder the kernel may refuse O_CREAT on a file of another user even if the file exists. So opening and
 * creating are two steps. Reading is enough for a lock. */
static int open_file(const char *path, mode_t mode, struct err *err)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 || errno != ENOENT || !mode)
            break;
        fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd >= 0 && fchmod(fd, mode) < 0) { /* the umask must not keep other users out */
            close(fd);
            fd = -1;
            break;
        }
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd < 0 ? err_sys(err, "open the lock '%s'", path) : fd;
}

/* A file that cannot be a lock is in the way of every daemon, and may be gone tomorrow. */
static int in_the_way(const char *uuid, const char *path, const char *what, struct err *err)
{
    return err_set(err, -EWOULDBLOCK, "GPU %s cannot be locked: '%s' is %s; remove it", uuid, path, what);
}

/* Returns a descriptor, -EWOULDBLOCK for a file that cannot be a lock, or any other error. mode 0: makes no file. */
static int open_lock(const char *uuid, const char *path, mode_t mode, struct err *err)
{
    int fd = open_file(path, mode, err);
    struct stat st;

    if (fd == -ELOOP)
        return in_the_way(uuid, path, "a symbolic link", err);
    if (fd == -EACCES || fd == -EPERM || fd == -ENXIO)
        return in_the_way(uuid, path, "of another user and no lock", err);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)
        return fd;
    close(fd);
    return in_the_way(uuid, path, "no plain file with one name", err);
}

/* ---- the other kind of daemon ---- */

static bool is_locked(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static bool file_is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    bool held = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && is_locked(fd);

    if (fd >= 0)
        close(fd);
    return held;
}

/* The kernel lists each lock with the numbers of its device and file. */
static bool system_holds(const char *path)
{
    char line[LINE_ROOM];
    unsigned long ino;
    unsigned major_of, minor_of;
    struct stat st;
    bool held = false;
    FILE *f = lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen("/proc/locks", "re") : NULL;

    while (f && !held && fgets(line, sizeof line, f))
        held = sscanf(line, "%*d: FLOCK %*s WRITE %*d %x:%x:%lu", &major_of, &minor_of, &ino) == 3 && ino == st.st_ino &&
               major_of == major(st.st_dev) && minor_of == minor(st.st_dev);
    if (f)
        fclose(f);
    return held;
}

static bool other_holds(const struct gpulocks *l, const struct place *p)
{
    return l->own ? file_is_held(p->other) : system_holds(p->other);
}

/* ---- locks ---- */

/* Returns -EWOULDBLOCK if the other kind of daemon has locked the GPU. */
static int look_at_other(const struct gpulocks *l, const char *uuid, const struct place *p, struct err *err)
{
    return other_holds(l, p) ? err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of %s daemon ('%s')", uuid,
                                       l->own ? "a user's" : "the system's", p->other)
                             : 0;
}

/* The lock file may have been renewed between open and lock: a lock on the old file is worth nothing. */
static bool is_of_that_name(int fd, const char *path)
{
    struct stat mine, there;

    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

static int lock_file(const char *uuid, const char *path, mode_t mode, struct err *err)
{
    int fd = -1;

    for (int i = 0; i < TRIES; i++) {
        fd = open_lock(uuid, path, mode, err);
        if (fd < 0)
            return fd;
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int rc = errno == EWOULDBLOCK ? err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of another daemon ('%s')", uuid, path)
                                          : err_sys(err, "lock '%s'", path);

            close(fd);
            return rc;
        }
        if (is_of_that_name(fd, path))
            return fd;
        close(fd);
    }
    return err_set(err, -EWOULDBLOCK, "the lock '%s' of GPU %s is renewed again and again", path, uuid);
}

/* Takes this daemon's lock first, then looks at the other kind's. So if both take a GPU at the same time, at most one
 * gets it. */
int gpulock_take(const struct gpulocks *l, const char *uuid, int *ret_fd, struct err *err)
{
    struct place p;
    int fd, rc = find_place(l, uuid, &p, err);

    if (rc == 0 && l->own)
        rc = check_folder(l->system, err);
    if (rc < 0)
        return rc;
    fd = lock_file(uuid, p.own, l->own ? 0600 : 0666, err);
    if (fd < 0)
        return fd;
    rc = look_at_other(l, uuid, &p, err);
    if (rc < 0)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

int gpulock_adopt(const struct gpulocks *l, const char *uuid, int fd, struct err *err)
{
    struct place p;
    int rc = find_place(l, uuid, &p, err);

    if (rc < 0)
        return rc;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of another daemon", uuid)
                                    : err_sys(err, "keep the lock of GPU %s", uuid);
    return look_at_other(l, uuid, &p, err);
}

void gpulock_renew(const struct gpulocks *l, const char *uuid, ino_t ino)
{
    char tmp[PATH_ROOM + 8];
    struct place p;
    struct stat st;
    struct err err;
    int fd;

    if (!l->own || find_place(l, uuid, &p, &err) < 0 || lstat(p.own, &st) < 0 || st.st_ino != ino || !file_is_held(p.own))
        return;
    snprintf(tmp, sizeof tmp, "%s.new", p.own);
    fd = open(tmp, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    close(fd);
    if (rename(tmp, p.own) < 0)
        unlink(tmp);
}

bool gpulock_is_held(const struct gpulocks *l, const char *uuid, struct err *ret_why)
{
    struct place p;
    bool held;
    int fd;

    if (find_place(l, uuid, &p, ret_why) < 0)
        return false;
    fd = open_lock(uuid, p.own, 0, ret_why);
    if (fd == -EWOULDBLOCK)
        return true;
    held = (fd >= 0 && is_locked(fd)) || other_holds(l, &p);
    if (fd >= 0)
        close(fd);
    if (held)
        err_set(ret_why, -EWOULDBLOCK, "a job of another daemon has its lock");
    return held;
}

int gpulock_open_shared(const char *name, struct err *err)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof path, "%s/detd-%s.lock", shared_folder(), name);
    return open_file(path, 0644, err);
}
