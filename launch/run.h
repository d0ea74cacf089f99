/* SPDX-License-Identifier: Apache-2.0 */ /* launch/run.h - the jobs that this process has started, and scopes that are
 * being emptied. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "launch/scope.h"
#include "proto/launch.h"

struct run {
    struct run *next;
    struct launch_ticket ticket;
    int64_t number; /* of the request that started it */
    pid_t pid;      /* 0: it was started by an earlier detd-launch, or it has left */
    int trouble_fd; /* -1: the same */
    int begun_fd;   /* its other end is closed when the child executes its program; -1: it has, or it need not */
    int status;
    bool leaving, told;
    bool late;            /* it was killed before it executed its program: status and text are set */
    bool over;            /* its state will not be asked for again: its scope is removed with it */
    long long kill_at_ms; /* 0: never */
    long long free_at_ms; /* when its processes are freed of tracers; 0: it was not killed since */
    long long until_ms;   /* leaving: EXITED is told then, even if processes live */
    char text[LAUNCH_TEXT];
};

/* Takes trouble_fd, a file for the message of a job that could not begin, and begun_fd. limit_s: the child is killed
 * after so many seconds; with begun_fd only if it has not executed its program by then, which counts as
 * SUP_EXIT_REFUSED. Without (-1, for CLEAR) its scope is removed with it. 0 or -ENOMEM. */
int run_add(const struct launch_ticket *t, int64_t number, pid_t pid, int trouble_fd, int begun_fd, int limit_s);
/* Kills all live processes of the job, and tells whether there were any. An empty scope stays, so that a later call
 * gives the same answer. over: there will be no later call before the next start. */
enum scope_left run_kill(const struct launch_ticket *t, bool over);
/* The group of processes that a kill would reach, if any live. */
enum launch_reach run_reach(const struct launch_ticket *t);
/* Whether run_look() must be called again soon. */
bool run_any_left(void);
/* Reaps children that have left, kills the processes that they leave behind, and calls exited when these are gone.
 * Reaps also the children that a job has borne for this process (CLONE_PARENT). gone: no process lives; false: not
 * known. */
void run_look(void (*exited)(const struct run *r, bool gone));
