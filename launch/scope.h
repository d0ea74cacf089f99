/* SPDX-License-Identifier: Apache-2.0 */ /* launch/scope.h - control groups (version 2) below detd-launch's own, one
 * for each job that runs. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "proto/launch.h"

struct err;

struct scope_limits {
    long long tasks, memory; /* maximum for a job; 0: no limit besides the node's */
};

/* Finds our own group and prepares it for scopes. If that fails, says so on stderr, and there are no scopes: sessions
 * are used instead. notes: a permanent folder of root's, with a note of the group below which each job was last
 * started. */
void scope_open(const struct scope_limits *limits, const char *notes);
/* The same with another group's folder: absolute. */
void scope_open_at(const char *group, const struct scope_limits *limits, const char *notes);
bool scope_there_are(void);
/* Notes that the job is started without a scope. */
void scope_forget(const struct launch_ticket *t);
/* Makes the job's scope, with its limits and a share of the CPUs by its slots. Returns a descriptor of its folder, for
 * scope_join(), or an error. */
int scope_make(const struct launch_ticket *t, int slots, struct err *err);
int scope_join(int scope);
/* Kills all processes in the scope. */
void scope_kill(const struct launch_ticket *t);
/* Calls `each` with every thread in the scope. */
void scope_each(const struct launch_ticket *t, void (*each)(pid_t thread, uid_t user));
/* Whether no thread in the scope executes an instruction of its program again: each was killed, or exits. Such a thread
 * may wait in the kernel for ever, for a file system for example. False: also if that is not known. */
bool scope_is_dying(const struct launch_ticket *t);

enum scope_left {
    SCOPE_NONE,  /* the job was started without a scope, or below another group: its processes are not known */
    SCOPE_EMPTY, /* no process lives in it; it may be gone: stopping a service removes its empty groups */
    SCOPE_HELD   /* a process lives in it */
};

enum scope_left scope_look(const struct launch_ticket *t);
/* Removes the scope if it is empty; it is SCOPE_NONE afterwards. */
void scope_remove(const struct launch_ticket *t);
