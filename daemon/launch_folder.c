/* daemon/launch_folder.c - folders of jobs that have ended: what of them goes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launch.h"
#include "daemon/launch_impl.h"
#include "daemon/wipe.h"
#include "proto/err.h"

enum { PATH_ROOM = 4096 + 64 };

/* ---- all of it ---- */

static int rename_removed(const char *jobs_dir, int64_t job, const char *from, const char *to, struct err *err)
{
    int fd, free = launch_lock_state(jobs_dir, job, &fd), rc = 0;

    if (free == 0)
        rc = err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)job);
    else if (rename(from, to) < 0 && errno != ENOENT)
        rc = err_sys(err, "rename '%s'", from);
    if (fd >= 0)
        close(fd);
    return rc;
}

int launch_remove_folder(const char *jobs_dir, int64_t job, const char *store_id, int max, struct err *err)
{
    char path[PATH_ROOM], removed[PATH_ROOM + 16];
    int rc;

    snprintf(path, sizeof path, "%s/%lld", jobs_dir, (long long)job);
    snprintf(removed, sizeof removed, "%s.removed", path);
    rc = wipe_folder(removed, max, err);
    if (rc != 0 || access(path, F_OK) != 0 || !launch_is_ours(jobs_dir, job, store_id))
        return rc;
    rc = rename_removed(jobs_dir, job, path, removed, err);
    return rc < 0 ? rc : wipe_folder(removed, max, err);
}

/* ---- parts of it ---- */

/* Each entry of the job's folder `name` but the one that is called `keep`. */
static int thin(const char *jobs_dir, int64_t job, const char *name, const char *keep, struct err *err)
{
    char folder[PATH_ROOM], path[PATH_ROOM + 256];
    const struct dirent *entry;
    int rc = 0, fd;
    DIR *dir;

    snprintf(folder, sizeof folder, "%s/%lld/%s", jobs_dir, (long long)job, name);
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    while (rc == 0 && dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || strcmp(entry->d_name, keep) == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        while ((rc = wipe_folder(path, INT_MAX, err)) > 0)
            ;
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* checkpoint: the one that stays; NULL: all do. */
static int thin_folder(const char *jobs_dir, int64_t job, const char *store_id, const char *checkpoint, struct err *err)
{
    int fd, free = launch_lock_state(jobs_dir, job, &fd), rc = 0;

    if (free == 0) {
        rc = err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)job);
    } else if (fd >= 0 && launch_is_ours(jobs_dir, job, store_id)) {
        rc = checkpoint ? thin(jobs_dir, job, "checkpoints", checkpoint, err) : 0;
        rc = rc < 0 ? rc : thin(jobs_dir, job, "log", "", err);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

int launch_thin_folder(const char *jobs_dir, int64_t job, const char *store_id, int64_t keep, struct err *err)
{
    char step[32];

    snprintf(step, sizeof step, "step-%lld", (long long)keep);
    return thin_folder(jobs_dir, job, store_id, step, err);
}

int launch_drop_logs(const char *jobs_dir, int64_t job, const char *store_id, struct err *err)
{
    return thin_folder(jobs_dir, job, store_id, NULL, err);
}
