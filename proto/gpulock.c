#include "proto/gpulock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

enum { UUID_MAX = 80, PATH_ROOM = 128, TRIES = 5 };

/* The mode decides and not the user's own rights, so that all users come to the same folder. */
static const char *folder(void)
{
    static const mode_t shared = S_ISVTX | S_IWOTH | S_IXOTH;
    struct stat st;

    return stat("/run/lock", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & shared) == shared ? "/run/lock" : "/tmp";
}

static int lock_path(const char *uuid, char *ret, struct err *err)
{
    size_t n = strspn(uuid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-");

    if (n == 0 || n > UUID_MAX || uuid[n])
        return err_set(err, ERR_INPUT, "'%.80s' is no UUID of a GPU", uuid);
    snprintf(ret, PATH_ROOM, "%s/detd-%s.lock", folder(), uuid);
    return 0;
}

/* In a sticky folder the kernel may refuse O_CREAT on a file of another user even if it is there, so opening and creating are two steps. Reading
 * is enough for a lock. */
static int open_file(const char *path, bool create, struct err *err)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 || errno != ENOENT || !create)
            break;
        fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 && fchmod(fd, 0666) < 0) { /* the umask must not keep other users out */
            close(fd);
            fd = -1;
            break;
        }
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd < 0 ? err_sys(err, "open the lock '%s'", path) : fd;
}

/* What is not to be locked is in the way of every daemon, and may be gone tomorrow. */
static int in_the_way(const char *uuid, const char *path, const char *what, struct err *err)
{
    return err_set(err, -EWOULDBLOCK, "GPU %s cannot be locked: '%s' is %s; remove it", uuid, path, what);
}

/* A descriptor, -EWOULDBLOCK for what is in the way, or any other error. */
static int open_lock(const char *uuid, const char *path, bool create, struct err *err)
{
    int fd = open_file(path, create, err);
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

int gpulock_take(const char *uuid, int *ret_fd, struct err *err)
{
    char path[PATH_ROOM];
    int fd, rc = lock_path(uuid, path, err);

    if (rc < 0)
        return rc;
    fd = open_lock(uuid, path, true, err);
    if (fd < 0)
        return fd;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        rc = errno == EWOULDBLOCK ? err_set(err, -EWOULDBLOCK, "GPU %s is locked by a job of another daemon ('%s')", uuid, path)
                                  : err_sys(err, "lock '%s'", path);
    if (rc < 0)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

bool gpulock_is_held(const char *uuid)
{
    char path[PATH_ROOM];
    struct err err;
    bool held = false;
    int fd = lock_path(uuid, path, &err) == 0 ? open_lock(uuid, path, false, &err) : -1;

    if (fd < 0)
        return fd == -EWOULDBLOCK;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        held = errno == EWOULDBLOCK;
    close(fd);
    return held;
}
