/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/gpulock.h - one GPU, one job, on the whole machine: a lock file for each UUID, which is never removed and whose contents mean nothing; the kernel
 * drops the lock with the process that holds it, however it ends.
 *
 * A system's daemon keeps its locks in a folder of its own, in files that nobody else may open. Daemons of users share /run/lock where everybody may write
 * there, else /tmp. Each looks at the other's: a user's daemon at the kernel's list of locks, so that it needs no right to the file; a system's daemon at
 * whether a plain file is locked, so that links, folders and files that somebody put there take no GPU from it.
 *
 * Where jobs run as their submitters (launch.h), who may not open the system's files, its daemon takes the lock and hands the descriptor on.
 *
 * Locks keep daemons from sharing a GPU by accident, not from doing it on purpose: who may write into the shared folder may keep a GPU from all users'
 * daemons, and, by locking a file there as a daemon does, from the system's, till his process ends. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct err;

#define GPULOCK_SYSTEM "/run/detd/gpus"

struct gpulocks {
    const char *system; /* folder of the system daemon's locks; borrowed */
    bool own;           /* this daemon is that one */
};

/* Takes the lock and keeps it as long as *ret_fd is open; the descriptor is not inherited. -EWOULDBLOCK: another process has it, or a job of the other
 * kind of daemon has the GPU, or something lies in its place that cannot be locked: a link, a folder, a file with two names or that may not be read. Who
 * put it there keeps the GPU from all daemons that lock there, till somebody removes it. */
int gpulock_take(const struct gpulocks *l, const char *uuid, int *ret_fd, struct err *err);
/* Makes a lock that was handed on one's own: the kernel's list names who took it, and in a container leaves out one whose taker has gone. For that it is let go
 * of for a moment: -EWOULDBLOCK, if somebody else has the GPU then. */
int gpulock_adopt(const struct gpulocks *l, const char *uuid, int fd, struct err *err);
/* For a system's daemon, which knows that no process of a job lives: if the lock that was handed to it, the file `ino`, is held still, by whomever, that one holds it in vain. The lock
 * of another daemon's job, which is another file or was never handed on, stays. */
void gpulock_renew(const struct gpulocks *l, const char *uuid, ino_t ino);
/* Whether a job of any daemon has it now, or it cannot be taken for what lies there; ret_why says which. False too where that cannot be found out. */
bool gpulock_is_held(const struct gpulocks *l, const char *uuid, struct err *ret_why);
