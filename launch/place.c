#include "launch/place.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
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

/* Makes or opens the job's folder in a folder of detd's own, so that root's work there can harm detd alone. A folder
 * that belongs to root is left from a start that ended before fchown(): it is removed if empty, else refused. */
static int open_own(int jobs, const struct launch_ticket *t, struct err *err)
{
    struct stat st;
    bool made = false;
    char name[24];
    int fd;

    snprintf(name, sizeof name, "%lld", (long long)t->job);
    if (fstatat(jobs, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0)
        unlinkat(jobs, name, AT_REMOVEDIR);
    if (mkdirat(jobs, name, 0700) == 0)
        made = true;
    else if (errno != EEXIST)
        return err_sys(err, "make the folder of job %s", name);
    fd = openat(jobs, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open the folder of job %s", name);
    /* 0700: the folder that was just made, or another one into which only root has ever written */
    if (made && fstat(fd, &st) == 0 && st.st_uid == 0 && (st.st_mode & 07777) == 0700 &&
        (fchown(fd, t->uid, (gid_t)-1) < 0 || fsync(jobs) < 0)) {
        err_sys(err, "give job %s its folder", name);
        close(fd);
        return err->code;
    }
    if (fstat(fd, &st) == 0 && st.st_uid == t->uid)
        return fd;
    close(fd);
    return err_set(err, ERR_DENIED, "the folder of job %s is not its submitter's", name);
}

int place_open(const char *state, uid_t detd, const struct launch_ticket *t, struct err *err)
{
    int fd, jobs = open_detds(state, "jobs", detd, err);

    if (jobs < 0)
        return jobs;
    fd = open_own(jobs, t, err);
    close(jobs);
    return fd;
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

static int check_roots(const char *path, struct err *err)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return err_sys(err, "look at '%s'", path);
    if (st.st_uid != 0 || (st.st_mode & 022))
        return err_set(err, ERR_DENIED, "'%s' must belong to root and be writable by root alone: other writers could run jobs as any user",
                       path);
    return 0;
}

int place_program(const char *name, char *ret, size_t size, struct err *err)
{
    char me[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", me, sizeof me - 1);
    int rc;

    if (n < 0)
        return err_sys(err, "read /proc/self/exe");
    me[n] = '\0';
    rc = check_roots(dirname(me), err);
    if ((size_t)snprintf(ret, size, "%s/%s", me, name) >= size)
        return err_set(err, -ENAMETOOLONG, "'%s': too long", me);
    if (rc == 0)
        rc = check_roots(ret, err);
    return rc == 0 && access(ret, X_OK) < 0 ? err_sys(err, "'%s'", ret) : rc;
}
