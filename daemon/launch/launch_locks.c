/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_locks.c - the locks of a job's processes: whether one
 * is held, by which session, and their replacement. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/launch/launch.h"
#include "daemon/launch/launch_impl.h"
#include "proto/host/gpulock.h"
#include "proto/host/lock.h"

enum { PATH_ROOM = LAUNCH_PATH_ROOM };

bool launch_lock_is_free(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];
    int fd, state;

    launch_own_path(path, jobs_dir, job, "lock");
    state = lock_try(path, &fd);
    if (fd >= 0)
        close(fd);
    return state == 1;
}

int launch_lock_state(const char *jobs_dir, int64_t job, int *ret_fd)
{
    char path[PATH_ROOM];

    launch_own_path(path, jobs_dir, job, "lock");
    return lock_try(path, ret_fd);
}

long launch_session(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];

    launch_own_path(path, jobs_dir, job, "lock");
    return lock_session(path);
}

int launch_kill(const char *jobs_dir, int64_t job, char *ret, size_t size)
{
    char path[PATH_ROOM];
    int lock, found;

    launch_own_path(path, jobs_dir, job, "lock");
    ret[0] = '\0';
    lock = open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0)
        return 0;
    found = lock_kill(lock, ret, size);
    close(lock);
    return found;
}

/* A length without a session: the job was started (launch_has_spool()). The length of a file takes no room of a full
 * disk, its bytes do. */
enum { NO_SESSION_BYTES = 2 };

void launch_make_spare_lock(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM];
    int fd;

    launch_held_path(path, jobs_dir, job, "lock.new");
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (ftruncate(fd, NO_SESSION_BYTES) < 0)
        unlink(path);
    close(fd);
}

/* On a full disk some file systems cannot make another file. So the next one is always there: it is made with the lock,
 * or when that is renewed. */
static void renew_lock(const char *jobs_dir, int64_t job)
{
    char path[PATH_ROOM], spare[PATH_ROOM + 8];

    launch_held_path(path, jobs_dir, job, "lock");
    snprintf(spare, sizeof spare, "%s.new", path);
    launch_make_spare_lock(jobs_dir, job);
    if (rename(spare, path) == 0)
        launch_make_spare_lock(jobs_dir, job);
}

void launch_renew_locks(const char *jobs_dir, int64_t job, const struct gpulocks *locks, const char *gpus)
{
    char list[sizeof((struct launch_request *)NULL)->gpus], path[PATH_ROOM], *at, *uuid;
    unsigned long long ino;
    FILE *f;

    renew_lock(jobs_dir, job);
    snprintf(list, sizeof list, "%s", gpus);
    launch_held_path(path, jobs_dir, job, "gpus");
    f = list[0] ? fopen(path, "re") : NULL;
    for (uuid = strtok_r(list, ",", &at); f && uuid && fscanf(f, "%llu", &ino) == 1; uuid = strtok_r(NULL, ",", &at))
        gpulock_renew(locks, uuid, (ino_t)ino); /* in the order in which they were taken, up to the first that another daemon had */
    if (f)
        fclose(f);
}

void launch_note_session(const char *jobs_dir, int64_t job, long session)
{
    char path[PATH_ROOM], text[32];
    int n = snprintf(text, sizeof text, "%ld\n", session), fd;

    launch_held_path(path, jobs_dir, job, "lock");
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (ftruncate(fd, n) < 0 || pwrite(fd, text, (size_t)n, 0) < 0)
        errno = 0; /* no error, on a full disk for example: the text only tells to which job a process on a GPU belongs */
    close(fd);
}
