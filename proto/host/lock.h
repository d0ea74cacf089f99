/* SPDX-License-Identifier: Apache-2.0 */ /* proto/host/lock.h - the lock of a job's folder as seen from outside: whether any process of the job lives, which they are, and how they are killed. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct stat;

/* 1: free, and now locked by *ret_fd; 0: a process has it; < 0: that cannot be found out. Where there is no file, or a folder, socket or loop of
 * links in its place, it is free, and *ret_fd -1; else the caller closes it. */
int lock_try(const char *path, int *ret_fd);
/* Session of the job's processes, as detd-job wrote it into the lock; 0: not known. */
long lock_session(const char *path);
/* Looks at all processes, as far as this one may, and sends SIGKILL to those of the session, and to every other one that holds the lock; while nobody does, to
 * none. lock: the file, opened by this process. Returns how many there are; `ret` names one: "process 12 (name, state D)". */
int lock_kill(int lock, char *ret, size_t size);
/* Whether the process, a number, has a descriptor over which the file is locked: that has been handed down from a supervisor. */
bool lock_is_held_by(const char *pid, const struct stat *lock);
