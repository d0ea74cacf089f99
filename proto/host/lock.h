/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/lock.h - the lock of a job's folder as seen from outside:
 * whether processes of the job live, and how to find and kill them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct stat;

/* Returns 1: the lock was free, and *ret_fd locks it now; 0: a process has it; < 0: unknown, an error. A missing file,
 * or a folder, socket or loop of links in its place, counts as free, with *ret_fd -1. Otherwise the caller closes
 * *ret_fd. */
int lock_try(const char *path, int *ret_fd);
/* Session of the job's processes, as detd-job wrote it into the lock; 0: not known. */
long lock_session(const char *path);
/* Looks at all processes that this one may see. Sends SIGKILL to those of the session, and to every other process that
 * holds the lock; to no process while the lock is free. lock: the file, opened by this process. Returns the number of
 * killed processes; `ret` names one: "process 12 (name, state D)". */
int lock_kill(int lock, char *ret, size_t size);
/* Whether the process with the number `pid` has a descriptor by which the file is locked. Such a descriptor was handed
 * down from a supervisor. */
bool lock_is_held_by(const char *pid, const struct stat *lock);
