/* SPDX-License-Identifier: Apache-2.0 */ /* launch/holders.h - kills the processes of a job that hold its lock, in any
 * scope. */
#pragma once
#include <stddef.h>
#include <sys/types.h>

#include "proto/launch.h"

/* Sends SIGKILL to these processes, and to the rest of the session that is written in the lock. Does so as the ticket's
 * user, so that no process of another user can be hit. Returns their number; -1: it was not known within a second.
 * `ret` names one. lock: its file. */
int holders_kill(const struct launch_ticket *t, int lock, char *ret, size_t size);
/* Forgets this child if it is one of holders_kill(): the caller waits for it. */
void holders_forget(pid_t pid);
