/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/kill.h - kills what is left of a job. */
#pragma once
#include <stdbool.h>

struct job;
struct runner;

struct killed {
    char who[160]; /* what they are called together, else one of them; "": nobody was found */
    char one[160]; /* one of them, where `who` is all; else "" */
    char why[160]; /* nobody can be killed now; "": whoever was found was */
    bool gone;     /* nothing of the job lives, as far as is known */
};
typedef void kill_done(struct runner *r, struct job *j, const struct killed *k);

/* One at a time; without memory none is begun, and who asked asks again. done: on the loop, maybe before this returns, unless the job is forgotten by then or detd stops. */
void kill_begin(struct runner *r, struct job *j, kill_done *done);
