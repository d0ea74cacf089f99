/* SPDX-License-Identifier: Apache-2.0 */ /* launch/scope.h - control groups (version 2) below detd-launch's own, one for each job that runs. */
#pragma once
#include <stdbool.h>

#include "proto/launch.h"

struct scope_limits {
    long long tasks, memory; /* of a job; 0: as many as the node gives */
};

/* Finds our own group and makes room in it. Where that cannot be done, says so on stderr, and there are no scopes: sessions stand for them. notes: a folder that
 * stays, root's alone, in which it is noted below which group a job was started last. */
void scope_open(const struct scope_limits *limits, const char *notes);
bool scope_there_are(void);
/* The job is started without a scope. */
void scope_forget(const struct launch_ticket *t);
/* Makes the job's scope, with its limits. A descriptor of its folder, by which a process joins (scope_join), or -errno. */
int scope_make(const struct launch_ticket *t);
int scope_join(int scope);
/* Kills whatever is in it. */
void scope_kill(const struct launch_ticket *t);

enum scope_left {
    SCOPE_NONE,  /* it was started without one, or below another group: nothing is known of its processes */
    SCOPE_EMPTY, /* nothing lives in it, be it there or not: who stops a service removes its groups if they are empty */
    SCOPE_HELD   /* something does */
};

enum scope_left scope_look(const struct launch_ticket *t);
/* If it is empty; then it is SCOPE_NONE. */
void scope_remove(const struct launch_ticket *t);
