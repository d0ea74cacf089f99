/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_folder.c - folders of jobs that have ended: removes
 * them, or parts of them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/launch/launch.h"
#include "daemon/launch/launch_impl.h"
#include "daemon/store/store.h"
#include "proto/err.h"
#include "proto/record.h"
#include "proto/host/wipe.h"

enum { PATH_ROOM = 4096 + 64 };

/* ---- all of it ---- */

static int rename_removed(const char *jobs_dir, int64_t job, const char *from, const char *to, struct err *err)
{
    int fd, free = launch_lock_state(jobs_dir, job, &fd), rc = 0;

    if (free < 0)
        rc = err_set(err, free, "look at the lock of job %lld: %s", (long long)job, strerror(-free));
    else if (free == 0)
        rc = err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)job);
    else if (rename(from, to) < 0 && errno != ENOENT)
        rc = err_sys(err, "rename '%s'", from);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The files in the folder of a job that ran as its submitter are that user's to remove. The empty folder is ours, and
 * so are the files that we keep about the job. */
static int remove_held(const char *jobs_dir, const struct job_row *row, const char *store_id, int max, struct err *err)
{
    char path[LAUNCH_PATH_ROOM];
    int fd, free, rc = launch_is_of(jobs_dir, row, store_id, err);

    if (rc <= 0)
        return rc;
    free = launch_lock_state(jobs_dir, row->id, &fd);
    if (fd >= 0)
        close(fd);
    if (free < 0)
        return err_set(err, free, "look at the lock of job %lld: %s", (long long)row->id, strerror(-free));
    if (free == 0)
        return err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)row->id);
    snprintf(path, sizeof path, "%s/%lld", jobs_dir, (long long)row->id);
    if (rmdir(path) < 0 && errno != ENOENT)
        return err_set(err, LAUNCH_ITS_USERS, "the files in '%s' belong to the user of the job", path);
    launch_held_path(path, jobs_dir, row->id, "");
    return wipe_folder(path, max, err);
}

int launch_held_ticket(const char *jobs_dir, int64_t job, char *ret, int *ret_lock, struct err *err)
{
    char path[LAUNCH_PATH_ROOM];
    ssize_t n;
    int fd;

    launch_held_path(path, jobs_dir, job, "ticket");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, ret, LAUNCH_TICKET_HEX);
    if (fd >= 0)
        close(fd);
    if (n != LAUNCH_TICKET_HEX)
        return err_set(err, -ENODATA, "'%s' holds no ticket", path);
    ret[n] = '\0';
    launch_held_path(path, jobs_dir, job, "lock");
    *ret_lock = open(path, O_RDONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (*ret_lock < 0 || flock(*ret_lock, LOCK_EX | LOCK_NB) < 0) {
        err_sys(err, "lock '%s'", path);
        if (*ret_lock >= 0)
            close(*ret_lock);
        return err->code;
    }
    return 0;
}

int launch_remove_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int max, struct err *err)
{
    char path[PATH_ROOM], removed[PATH_ROOM + 16];
    int rc;

    snprintf(path, sizeof path, "%s/%lld", jobs_dir, (long long)row->id);
    snprintf(removed, sizeof removed, "%s.removed", path);
    rc = wipe_folder(removed, max, err);
    if (rc == 0 && launch_is_held(jobs_dir, row->id))
        return remove_held(jobs_dir, row, store_id, max, err);
    if (rc != 0)
        return rc;
    if (launch_is_users(jobs_dir, row->id))
        return err_set(err, ERR_DENIED, "'%s' belongs to another user, and 'held' has no ticket for it", path);
    if (access(path, F_OK) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "look at '%s'", path);
    rc = launch_is_of(jobs_dir, row, store_id, err);
    if (rc <= 0)
        return rc;
    rc = rename_removed(jobs_dir, row->id, path, removed, err);
    return rc < 0 ? rc : wipe_folder(removed, max, err);
}

/* ---- numbers ---- */

int launch_highest(const char *jobs_dir, int64_t *ret, struct err *err)
{
    char held[PATH_ROOM];
    const char *const folders[] = { jobs_dir, held };

    *ret = 0;
    snprintf(held, sizeof held, "%s/../held", jobs_dir);
    for (int i = 0; i < 2; i++) {
        const struct dirent *entry;
        DIR *dir = opendir(folders[i]);

        if (!dir && errno != ENOENT)
            return err_sys(err, "open '%s'", folders[i]);
        while (dir && (entry = readdir(dir))) {
            char *end;
            long long job = strtoll(entry->d_name, &end, 10);

            if (job > *ret && job <= RECORD_MAX_COUNT && (!*end || *end == '.'))
                *ret = job;
        }
        if (dir)
            closedir(dir);
    }
    return 0;
}

/* ---- parts of it ---- */

/* Sets *ret to NULL and returns 0 if there is no such folder. */
static int open_part(const char *path, DIR **ret, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    *ret = NULL;
    if (fd < 0)
        return errno == ENOENT ? 0 : err_sys(err, "open '%s'", path);
    *ret = fdopendir(fd);
    if (*ret)
        return 0;
    close(fd);
    return err_sys(err, "read '%s'", path);
}

static bool is_other(const struct dirent *entry, const char *keep)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, keep) != 0;
}

/* Removes each entry of the job's folder `name` except the one called `keep`. */
static int thin(const char *jobs_dir, int64_t job, const char *name, const char *keep, struct err *err)
{
    char folder[PATH_ROOM], path[PATH_ROOM + 256];
    const struct dirent *entry;
    DIR *dir;
    int rc;

    snprintf(folder, sizeof folder, "%s/%lld/%s", jobs_dir, (long long)job, name);
    rc = open_part(folder, &dir, err);
    while (rc == 0 && dir && (entry = readdir(dir))) {
        if (!is_other(entry, keep))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        while ((rc = wipe_folder(path, INT_MAX, err)) > 0)
            ;
    }
    if (dir)
        closedir(dir);
    return rc;
}

/* Checks that the checkpoint to keep exists. The rows that name it may come from an older copy of the database, or the
 * trainer may have found it damaged since. */
static int check_kept(const char *jobs_dir, int64_t job, const char *keep, struct err *err)
{
    char folder[PATH_ROOM];
    const struct dirent *entry;
    bool found = false, others = false;
    DIR *dir;
    int rc;

    snprintf(folder, sizeof folder, "%s/%lld/checkpoints", jobs_dir, (long long)job);
    rc = open_part(folder, &dir, err);
    while (dir && (entry = readdir(dir))) {
        found = found || strcmp(entry->d_name, keep) == 0;
        others = others || is_other(entry, keep);
    }
    if (dir)
        closedir(dir);
    if (rc == 0 && others && !found)
        rc =
            err_set(err, ERR_STATE, "job %lld has checkpoints, but its best one, %s, is missing: nothing is removed", (long long)job, keep);
    return rc;
}

/* checkpoint: the name that stays; NULL: all stay. */
static int thin_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, const char *checkpoint, struct err *err)
{
    int fd, free, rc;

    if (launch_is_held(jobs_dir, row->id))
        return err_set(err, LAUNCH_ITS_USERS,
                       "job %lld ran as its submitter, and detd cannot look into its folder: the folder can only be removed as a whole",
                       (long long)row->id);
    free = launch_lock_state(jobs_dir, row->id, &fd);
    if (free < 0)
        rc = err_set(err, free, "look at the lock of job %lld: %s", (long long)row->id, strerror(-free));
    else if (free == 0)
        rc = err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)row->id);
    else
        rc = fd < 0 ? 0 : launch_is_of(jobs_dir, row, store_id, err);
    if (rc > 0) {
        rc = checkpoint ? check_kept(jobs_dir, row->id, checkpoint, err) : 0;
        if (rc == 0 && checkpoint)
            rc = thin(jobs_dir, row->id, "checkpoints", checkpoint, err);
        if (rc == 0)
            rc = thin(jobs_dir, row->id, "log", "", err);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

int launch_thin_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int64_t keep, struct err *err)
{
    char step[32];

    snprintf(step, sizeof step, "step-%lld", (long long)keep);
    return thin_folder(jobs_dir, row, store_id, step, err);
}

int launch_drop_logs(const char *jobs_dir, const struct job_row *row, const char *store_id, struct err *err)
{
    return thin_folder(jobs_dir, row, store_id, NULL, err);
}
