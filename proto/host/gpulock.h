/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/gpulock.h - one GPU, one job, on the whole machine: a lock file
 * for each UUID. The file stays; only gpulock_renew() replaces it. Its contents mean nothing. The kernel drops the lock
 * when the process that holds it ends, in any way.
 *
 * A system daemon keeps its locks in its own folder, in files that other users cannot open. Daemons of users share
 * /run/lock if everybody may write there, otherwise /tmp. Each kind of daemon looks at the locks of the other kind. A
 * user's daemon reads the kernel's list of locks, so it needs no right to the file. A system daemon looks only at locks
 * of plain files, so links, folders and unlocked files cannot take a GPU from it.
 *
 * If jobs run as their submitters (launch.h), they may not open the system's files. Then the system daemon takes the
 * lock and hands the descriptor on.
 *
 * Locks keep daemons from sharing a GPU by accident, not on purpose. A user who may write into the shared folder may
 * keep a GPU from all users' daemons. By locking a file there in the way of a daemon, the user may also keep it from
 * the system daemon, until the user's process ends. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;

#define GPULOCK_SYSTEM "/run/detd/gpus"

struct gpulocks {
    const char *system; /* folder of the system daemon's locks; borrowed */
    bool own;           /* this daemon is the system daemon */
};

/* Takes the lock and keeps it as long as *ret_fd is open; the descriptor is not inherited. -EWOULDBLOCK: another
 * process has the lock, or a job of the other kind of daemon has the GPU, or the thing in the lock's place cannot be
 * locked: a link, a folder, a file with two names or a file that may not be read. Such a thing keeps the GPU from all
 * daemons that lock there, until it is removed. */
int gpulock_take(const struct gpulocks *l, const char *uuid, int *ret_fd, struct err *err);
/* Takes over a lock that was handed on, so that the kernel's list names this process as its holder. (The list names the
 * process that took the lock, and in a container leaves out a lock whose taker is gone.) For that it releases the lock
 * for a moment. -EWOULDBLOCK: another process has the GPU by then. */
int gpulock_adopt(const struct gpulocks *l, const char *uuid, int fd, struct err *err);
/* For a system daemon that knows that no process of a job lives. If the lock that was handed to the job, the file
 * `ino`, is still held, a new file takes its place, so that holding the old one has no effect. The lock of another
 * daemon's job, which is another file or was never handed on, stays. */
void gpulock_renew(const struct gpulocks *l, const char *uuid, ino_t ino);
/* Whether a job of any daemon has the GPU now, or its lock cannot be taken because of the thing in its place; ret_why
 * says which. Also false if that cannot be found out. */
bool gpulock_is_held(const struct gpulocks *l, const char *uuid, struct err *ret_why);
/* Opens the lock file detd-NAME.lock of all daemons of users, and makes it if it is missing. Returns a descriptor that
 * is not inherited and that the caller locks and closes, or an error. */
int gpulock_open_shared(const char *name, struct err *err);
