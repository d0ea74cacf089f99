/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/removal.h - removes jobs that have ended: rows and folder. The
 * row of table jobs goes first, in one transaction with a note that the job is to be removed. Then its folder is
 * removed, in another thread, and its other rows, both piece by piece and one job after another. After a kill of detd
 * at any time, either the job is unchanged, or it is no longer visible and the next detd removes the rest. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/store.h"
#include "proto/err.h"
#include "proto/launch.h"

struct jobs;
struct launcher;
struct leaving;

/* All zero except the borrowed members. */
struct removals {
    struct jobs *jobs;
    struct launcher *launcher; /* NULL: no job ran as its submitter */
    const bool *stopping;      /* no work is begun any more */
    /* belongs to the thread while it works, otherwise to the loop */
    bool busy, again;
    int64_t after;
    int64_t sweeping;   /* the job of which rows are being removed in the store; 0: no job */
    bool passed;        /* another job's folder was removed meanwhile */
    struct job_row row; /* the job that is being removed; id 0: search behind `after` */
    int64_t asked;      /* the job of the last request to detd-launch to empty a folder (launcher_clear()) */
    char ticket[LAUNCH_TICKET_HEX + 1];
    int lock, refused;           /* of that job: its lock, taken, to be handed on; how often detd-launch could not begin yet */
    bool silent;                 /* detd-launch has not answered since the begin of this round: the other jobs do not wait for it */
    bool left;                   /* a job of this round could not be removed */
    int found, held_up;          /* number of jobs that were left, in this round and in the last whole one */
    int64_t found_job, held_job; /* one of them */
    bool told;                   /* the reason was logged since the last removal */
    int again_in;                /* seconds until the next round for the jobs that are left, or 0 */
    int rests;                   /* rounds in a row that left a job */
    bool later;                  /* ask detd-launch again in a second */
    int rc;                      /* result of wipe_folder() for the piece */
    struct err err;
    struct leaving *waiting; /* waiting for the processes of their jobs to leave */
};

/* Removes the job; by: the user in its event. done runs when the removal is durable and the job is no longer visible.
 * It also runs after 55 s if the job's processes have not left, or its end has not reached the disk: then nothing has
 * changed, and *err says which. Returns 0, or an error if removal is not possible. */
int removal_begin(struct removals *r, const struct job_row *row, const char *by, store_done *done, void *arg, struct err *err);
/* Once a second. */
void removal_tick(struct removals *r);
/* Answers all waiting callers. */
void removal_stop(struct removals *r);
/* Continues the removals of an earlier detd, failed ones included. */
void removal_resume(struct removals *r);
