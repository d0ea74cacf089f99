/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/retention.h - removes things that detd.conf keeps only for some
 * days: jobs that have ended, their curves and logs, and events. Looks for them when detd starts and once an hour, one
 * thing after the other, in pieces. Ages are counted in time that detd has run, so that a wrong clock removes
 * nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "daemon/base/config.h"
#include "daemon/job/job.h"
#include "proto/err.h"

struct removals;

enum retention_part { RETENTION_JOBS, RETENTION_POINTS, RETENTION_LOGS, RETENTION_EVENTS, RETENTION_PARTS };

/* All zero except the first three. */
struct retention {
    struct removals *removals; /* with jobs, store and threads */
    struct config_keep days;
    double running; /* seconds that detd has run on this database, all its processes together */
    double counted; /* boot_s() up to which this is counted; 0: not begun */
    int ticks;      /* since the last round began */
    bool begun;     /* a round has begun */
    /* belongs to the thread while it works, otherwise to the loop */
    bool busy;
    enum retention_part part;
    int64_t after;
    struct job_row row; /* id 0: no job is left */
    int rc;
    struct err err;
};

/* Once a second. */
void retention_tick(struct retention *r);
/* Stores how long detd has run; for its end. */
void retention_note(const struct retention *r);
