/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/kill.h - kills the remaining processes of a job. */
#pragma once
#include <stdbool.h>

struct job;
struct runner;

struct killed {
    char who[160]; /* description of all killed processes, or one of them; "": no process was found */
    char one[160]; /* a process of them, if `who` describes all; otherwise "" */
    char why[160]; /* why no process can be killed now; "": all found processes were killed */
    bool gone;     /* nothing of the job lives, as far as is known */
    bool dying;    /* no process of the job runs its program again, even if it does not end */
};
typedef void kill_done(struct runner *r, struct job *j, const struct killed *k);

/* Kills at most once at a time for a job. Without memory it does nothing, and the caller must ask again. done is called
 * on the loop, maybe before this returns; not at all if the job is forgotten by then or detd stops. */
void kill_begin(struct runner *r, struct job *j, kill_done *done);
