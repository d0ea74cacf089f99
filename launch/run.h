/* SPDX-License-Identifier: Apache-2.0 */ /* launch/run.h - the jobs that we have started, and scopes that are on their way out. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

#include "launch/scope.h"
#include "proto/launch.h"

struct run {
    struct run *next;
    struct launch_ticket ticket;
    int64_t number; /* of the request that started it */
    pid_t pid;      /* 0: of an earlier detd-launch, or it has left */
    int trouble_fd; /* -1: as above */
    int status;
    bool leaving, told;
    bool over;            /* nobody will ask whether anything of it lives: its scope goes with it */
    long long kill_at_ms; /* 0: never */
    long long until_ms;   /* leaving: EXITED is told then, whatever lives */
    char text[LAUNCH_TEXT];
};

/* Takes trouble_fd, from which the words of a job that could not begin are read. limit_s: it is killed then, and was
 * all of a job that was removed; 0: it may take as long as it likes. 0 or -ENOMEM. */
int run_add(const struct launch_ticket *t, int64_t number, pid_t pid, int trouble_fd, int limit_s);
/* Kills all of the job that lives, and says whether anything did. An empty scope stays, so that this can be told again to whoever has not heard it; over: it is
 * not asked again before the next start. */
enum scope_left run_kill(const struct launch_ticket *t, bool over);
/* Whom either reaches, where anything of it lives. */
enum launch_reach run_reach(const struct launch_ticket *t);
/* Whether anything has to be looked at again soon. */
bool run_any_left(void);
/* Waits for those that have left, kills what they leave behind, and tells of them when that is gone. gone: nothing of it lives; false: that is not known. */
void run_look(void (*exited)(const struct run *r, bool gone));
