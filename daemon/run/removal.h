/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/removal.h - removes jobs that have ended: rows and folder. The row of table jobs goes first, in one transaction with a note that the job is to be removed;
 * then its folder, in another thread, and its other rows, both piece by piece and one job after another. Whenever detd is killed, the job is there as it was, or
 * nothing of it is seen any more and the next detd goes on with what is left. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/store.h"
#include "proto/err.h"
#include "proto/launch.h"

struct jobs;
struct launcher;
struct leaving;

/* All zero but for what is borrowed. */
struct removals {
    struct jobs *jobs;
    struct launcher *launcher; /* NULL: no job ran as its submitter */
    const bool *stopping;      /* nothing is begun any more */
    /* of the thread while it works, else of the loop */
    bool busy, again;
    int64_t after;
    int64_t sweeping;   /* the job whose rows go, in the store; 0: none */
    bool passed;        /* another's folder was found gone meanwhile */
    struct job_row row; /* the one that is being removed; id 0: to be looked for behind `after` */
    int64_t asked;      /* its user's processes were to empty its folder */
    char ticket[LAUNCH_TICKET_HEX + 1];
    int lock, refused;           /* of that job: taken, to be handed on; how often detd-launch could not begin yet */
    bool silent;                 /* detd-launch has not answered since the first one was looked at: none of the others waits for it */
    bool left;                   /* of those that were looked at */
    int found, held_up;          /* so many were left, in this look and in the last whole one */
    int64_t found_job, held_job; /* one of them */
    bool told;                   /* why, since something was last removed */
    int again_in;                /* 0, or seconds to another look at what is left */
    int rests;                   /* looks that left something, in a row */
    bool later;                  /* it is asked again in a second */
    int rc;                      /* of the piece: wipe_folder()'s */
    struct err err;
    struct leaving *waiting; /* for processes of theirs to leave */
};

/* Removes the job; by: who asked, for its event. done runs when it is durable and nobody sees the job any more, or when its
 * processes have not left, or its end has not reached the disk, in a minute: then nothing has changed, and *err says which. Returns 0, or why that is not possible. */
int removal_begin(struct removals *r, const struct job_row *row, const char *by, store_done *done, void *arg, struct err *err);
/* Once a second. */
void removal_tick(struct removals *r);
/* Answers those who wait. */
void removal_stop(struct removals *r);
/* Goes on with what an earlier detd has begun, or what could not be removed then. */
void removal_resume(struct removals *r);
