#include "launch/place.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/err.h"

/* ---- the folder of a job ---- */

/* Opens <state>/<name> in our own mount namespace: detd may see other mounts, and jobs see ours. The folder above
 * <state> belongs to root, so no other user could put a link in its place. */
static int open_detds(const char *path, const char *name, uid_t detd, struct err *err)
{
    int state = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = state < 0 ? -1 : openat(state, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        err_sys(err, "open '%s' in '%s'", name, path);
    if (state >= 0)
        close(state);
    if (fd < 0 || (fstat(fd, &st) == 0 && st.st_uid == detd))
        return fd < 0 ? err->code : fd;
    close(fd);
    return err_set(err, ERR_DENIED, "'%s/%s' does not belong to detd's user", path, name);
}

/* Makes the job's folder in a folder of detd's own, so that root's work there can harm detd alone. An existing folder
 * is left to the child, since a file system that its user has mounted there may never answer. Only an empty one is made
 * anew: it may be root's, left from a start that ended before fchown(). */
static int make_own(int jobs, const struct launch_ticket *t, struct err *err)
{
    struct stat st;
    char name[24];
    int fd, rc = 0;

    snprintf(name, sizeof name, "%lld", (long long)t->job);
    unlinkat(jobs, name, AT_REMOVEDIR);
    if (mkdirat(jobs, name, 0700) < 0)
        return errno == EEXIST ? 0 : err_sys(err, "make the folder of job %s", name);
    fd = openat(jobs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open the folder of job %s", name);
    /* 0700: the folder that was just made, or another one into which only root has ever written */
    if (fstat(fd, &st) < 0 || st.st_uid != 0 || (st.st_mode & 07777) != 0700)
        rc = err_set(err, ERR_DENIED, "the folder of job %s was replaced", name);
    else if (fchown(fd, t->uid, (gid_t)-1) < 0 || fsync(jobs) < 0)
        rc = err_sys(err, "give job %s its folder", name);
    close(fd);
    return rc;
}

int place_make(const char *state, uid_t detd, const struct launch_ticket *t, struct err *err)
{
    int jobs = open_detds(state, "jobs", detd, err), rc = jobs < 0 ? jobs : make_own(jobs, t, err);

    if (rc >= 0)
        return jobs;
    if (jobs >= 0)
        close(jobs);
    return rc;
}

int place_lock(const char *state, uid_t detd, const struct launch_ticket *t)
{
    struct err err;
    int fd = open_detds(state, "held", detd, &err), job;
    struct stat st;
    char name[24];

    if (fd < 0)
        return -1;
    snprintf(name, sizeof name, "%lld", (long long)t->job);
    job = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(fd);
    if (job < 0)
        return -1;
    fd = openat(job, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    close(job);
    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == detd))
        return fd;
    close(fd);
    return -1;
}

/* ---- programs ---- */

int place_beside(const char *name, char *ret, size_t size, struct err *err)
{
    char me[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", me, sizeof me - 1);

    if (n < 0)
        return err_sys(err, "read /proc/self/exe");
    me[n] = '\0';
    return (size_t)snprintf(ret, size, "%s/%s", dirname(me), name) < size ? 0 : err_set(err, -ENAMETOOLONG, "'%s': too long", me);
}

/* In a folder with the sticky bit other writers cannot replace what belongs to root. */
static int check_roots(int fd, const char *path, int len, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, "look at '%.*s'", len, path);
    if (st.st_uid == 0 && (!(st.st_mode & 022) || (S_ISDIR(st.st_mode) && (st.st_mode & S_ISVTX))))
        return 0;
    return err_set(err, ERR_DENIED, "'%.*s' must belong to root and be writable by root alone: other writers could run jobs as any user",
                   len, path);
}

/* Opens a folder only after the one above it was checked. */
int place_program(const char *path, struct err *err)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), len = 1, rc = 0;

    while (fd >= 0 && (rc = check_roots(fd, path, len, err)) == 0 && path[len]) {
        const char *name = path + len + (path[len] == '/');
        char part[NAME_MAX + 1];
        int in = fd;

        snprintf(part, sizeof part, "%.*s", (int)strcspn(name, "/"), name);
        len = (int)(name - path) + (int)strlen(part);
        fd = openat(in, part, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        close(in);
    }
    if (fd < 0)
        return err_sys(err, "open '%.*s'", len, path);
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}
