/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/retention.h - what is kept for so many days only, as detd.conf says: jobs that have ended, their curves and logs, and events. Looked for when detd starts
 * and once an hour, one thing after the other, in pieces. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/config.h"
#include "daemon/job/job.h"
#include "proto/err.h"

struct removals;

enum retention_part { RETENTION_JOBS, RETENTION_POINTS, RETENTION_LOGS, RETENTION_EVENTS, RETENTION_PARTS };

/* All zero but for the first four. */
struct retention {
    struct removals *removals; /* with jobs, store and threads */
    struct config_keep days;
    double newest; /* time in the database when detd was started; 0: none */
    double opened; /* when that was, on the clock that nobody sets */
    int ticks;     /* since it began last */
    bool begun;    /* once at least */
    bool doubts;   /* the clock, and has said so */
    /* of the thread while it works, else of the loop */
    bool busy;
    enum retention_part part;
    int64_t after;
    struct job_row row; /* id 0: none is left */
    int rc;
    struct err err;
};

/* Once a second. */
void retention_tick(struct retention *r);
