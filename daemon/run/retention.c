#include "daemon/run/retention.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/base/log.h"
#include "daemon/run/removal.h"
#include "daemon/store/store.h"

enum { HOUR_TICKS = 3600, NOTE_S = 600, DAY_S = 24 * 3600 };

static void go_on(struct retention *r);

/* detd must have run for less than that when a thing was stored, for the thing to be removed; 0: nothing is. */
static double before(const struct retention *r)
{
    const int days[RETENTION_PARTS] = { r->days.jobs, r->days.points, r->days.logs, r->days.events };

    double age_s = (double)days[r->part] * DAY_S;

    return days[r->part] == 0 || r->running <= age_s ? 0 : r->running - age_s;
}

static void next_part(struct retention *r)
{
    r->part++;
    r->after = 0;
    go_on(r);
}

/* ---- jobs, one after another ---- */

static int cleared_bit(const struct retention *r)
{
    return r->part == RETENTION_POINTS ? STORE_CLEARED_POINTS : r->part == RETENTION_LOGS ? STORE_CLEARED_LOGS : 0;
}

static void found(void *arg, const struct job_row *row)
{
    struct retention *r = arg;

    r->row = *row;
}

static void work(void *arg)
{
    struct retention *r = arg;
    struct jobs *jobs = r->removals->jobs;
    const struct store_ended_query q = { .after = r->after, .running = before(r), .limit = 1, .uid = -1, .not_cleared = cleared_bit(r) };

    r->row.id = 0;
    r->rc = store_ended_jobs(jobs->store, &q, found, r, &r->err);
    if (r->rc == 0 && r->row.id && r->part == RETENTION_LOGS)
        r->rc = launch_drop_logs(jobs->folder, &r->row, store_id(jobs->store), &r->err);
    if (r->rc == LAUNCH_ITS_USERS) /* detd cannot remove them; the job is not looked at again */
        r->rc = 0;
}

static void next_job(struct retention *r)
{
    r->after = r->row.id;
    go_on(r);
}

/* A change that could not be stored is tried again in an hour. A job that was extended meanwhile is left alone. */
static void stored(void *arg, int rc, int64_t more, const struct err *err)
{
    struct retention *r = arg;

    (void)err;
    if (rc == 0 && more)
        store_thin_points(r->removals->jobs->store, r->row.id, stored, r);
    else
        next_job(r);
}

static void job_gone(void *arg, int rc, int64_t id, const struct err *err)
{
    (void)rc;
    (void)id;
    (void)err;
    next_job(arg);
}

static void after_work(void *arg)
{
    struct retention *r = arg;
    struct store *s = r->removals->jobs->store;

    if (r->rc < 0 && r->row.id)
        log_line("warning", "job %lld ended long ago, and its logs cannot be removed: %s", (long long)r->row.id, r->err.msg);
    if (*r->removals->stopping)
        r->busy = false;
    else if (r->row.id == 0)
        next_part(r);
    else if (r->rc < 0)
        next_job(r);
    else if (r->part == RETENTION_POINTS)
        store_thin_points(s, r->row.id, stored, r);
    else if (r->part == RETENTION_LOGS)
        store_clear_logs(s, r->row.id, stored, r);
    else if (removal_begin(r->removals, &r->row, "detd (keep_jobs)", job_gone, r, &r->err) < 0)
        next_job(r);
}

/* ---- events ---- */

static void events_gone(void *arg, int rc, int64_t more, const struct err *err)
{
    struct retention *r = arg;

    (void)err;
    if (rc == 0 && more)
        go_on(r);
    else
        next_part(r);
}

static void go_on(struct retention *r)
{
    while (r->part < RETENTION_PARTS && before(r) == 0)
        r->part++;
    if (*r->removals->stopping || r->part == RETENTION_PARTS)
        r->busy = false;
    else if (r->part == RETENTION_EVENTS)
        store_forget_events(r->removals->jobs->store, before(r), events_gone, r);
    else if (errands_add(r->removals->jobs->errands, work, after_work, r) < 0)
        r->busy = false;
}

/* ---- time ---- */

void retention_note(const struct retention *r)
{
    store_running(r->removals->jobs->store, r->running);
}

static void count(struct retention *r)
{
    double now = boot_s(), before_s = r->running;

    if (r->counted > 0)
        r->running += now - r->counted;
    if (r->counted == 0 || (int64_t)before_s / NOTE_S < (int64_t)r->running / NOTE_S)
        retention_note(r);
    r->counted = now;
}

static bool keeps_all(const struct config_keep *days)
{
    return days->jobs + days->points + days->logs + days->events == 0;
}

void retention_tick(struct retention *r)
{
    count(r);
    if (r->busy || keeps_all(&r->days) || (r->begun && ++r->ticks < HOUR_TICKS))
        return;
    r->begun = true;
    r->ticks = 0;
    r->busy = true;
    r->part = RETENTION_JOBS;
    r->after = 0;
    go_on(r);
}
