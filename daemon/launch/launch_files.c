/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_files.c - paths of a job's files, and how detd reads
 * and writes them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launch/launch.h"
#include "daemon/launch/launch_impl.h"
#include "proto/err.h"
#include "proto/host/folder.h"

enum { PATH_ROOM = LAUNCH_PATH_ROOM };

void launch_job_path(char *ret, const char *jobs_dir, int64_t job, const char *name)
{
    snprintf(ret, PATH_ROOM, "%s/%lld%s%s", jobs_dir, (long long)job, name[0] ? "/" : "", name);
}

void launch_held_path(char *ret, const char *jobs_dir, int64_t job, const char *name)
{
    snprintf(ret, PATH_ROOM, "%s/../held/%lld%s%s", jobs_dir, (long long)job, name[0] ? "/" : "", name);
}

bool launch_is_held(const char *jobs_dir, int64_t job)
{
    char held[PATH_ROOM];

    launch_held_path(held, jobs_dir, job, "");
    return access(held, F_OK) == 0;
}

/* The kernel answers from its memory: a file system that a user has mounted there is not asked. */
bool launch_is_there(const char *folder, bool *ret_ours)
{
    struct statx st;
    int rc = statx(AT_FDCWD, folder, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_UID, &st);
    bool there = rc == 0 || errno != ENOENT;

    if (ret_ours)
        *ret_ours = rc == 0 ? st.stx_uid == geteuid() : !there;
    return there;
}

bool launch_is_users(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];
    bool ours;

    if (launch_is_held(jobs_dir, job))
        return true;
    snprintf(path, sizeof path, "%s/../held", jobs_dir);
    if (access(path, F_OK) < 0)
        return false;
    launch_job_path(path, jobs_dir, job, "");
    launch_is_there(path, &ours);
    return !ours;
}

/* The path of a file that detd keeps about the job. It is in the job's folder, or in a folder of our own if the job's
 * folder belongs to its submitter. */
void launch_own_path(char *ret, const char *jobs_dir, int64_t job, const char *name)
{
    (launch_is_users(jobs_dir, job) ? launch_held_path : launch_job_path)(ret, jobs_dir, job, name);
}

int launch_open_plain(const char *path, int flags)
{
    int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

FILE *launch_read_plain(const char *path)
{
    int fd = launch_open_plain(path, O_RDONLY);

    return fd < 0 ? NULL : fdopen(fd, "r");
}

int launch_write_durably(const char *path, const char *text, struct err *err)
{
    char tmp[PATH_ROOM + 8];
    size_t len = strlen(text), done = 0;
    int fd, rc = 0;

    snprintf(tmp, sizeof tmp, "%s.new", path);
    fd = launch_open_plain(tmp, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0)
        return err_sys(err, "create '%s'", tmp);
    while (rc == 0 && done < len) {
        ssize_t n = write(fd, text + done, len - done);

        if (n < 0)
            rc = err_sys(err, "write '%s'", tmp);
        else
            done += (size_t)n;
    }
    if (rc == 0 && (fsync(fd) < 0 || rename(tmp, path) < 0))
        rc = err_sys(err, "publish '%s'", path);
    close(fd);
    return rc < 0 ? rc : folder_sync_name(path, err);
}

bool launch_has_spool(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];
    struct stat st;
    bool found = false;

    if (launch_is_users(jobs_dir, job)) { /* its lock holds the session since detd-launch told it first */
        launch_held_path(path, jobs_dir, job, "lock");
        return stat(path, &st) == 0 && st.st_size > 0;
    }
    for (int i = 0; i < 2 && !found; i++) {
        launch_job_path(path, jobs_dir, job, i == 0 ? "spool.0" : "spool.1");
        found = access(path, F_OK) == 0 || errno != ENOENT;
    }
    return found;
}

bool launch_has_checkpoint(const char *jobs_dir, const struct job_row *row, int64_t step)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof path, "%s/%lld/checkpoints/step-%lld", jobs_dir, (long long)row->id, (long long)step);
    return row->ticket[0] || launch_is_users(jobs_dir, row->id) || access(path, F_OK) == 0 || errno != ENOENT;
}
