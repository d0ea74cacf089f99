#include "daemon/run/retention.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "daemon/base/log.h"
#include "daemon/run/removal.h"
#include "daemon/store/store.h"

enum { HOUR_TICKS = 3600, DAY_S = 24 * 3600, IDLE_DAYS = 30 };

static void go_on(struct retention *r);

static double before(const struct retention *r)
{
    const int days[RETENTION_PARTS] = { r->days.jobs, r->days.points, r->days.logs, r->days.events };

    return days[r->part] == 0 ? 0 : now_s() - (double)days[r->part] * DAY_S;
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
    const struct store_ended_query q = { .after = r->after, .before = before(r), .limit = 1, .uid = -1, .not_cleared = cleared_bit(r) };

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

/* A clock that starts years ahead must not be taken for age. A node without events for weeks is normal. */
static bool clock_is_plausible(struct retention *r)
{
    double away = now_s() - r->newest - (mono_s() - r->opened); /* at the start, or since the clock was set */

    if (r->newest == 0 || away < IDLE_DAYS * DAY_S || clock_is_kept())
        return true;
    if (!r->doubts)
        log_line(
            "warning",
            "the clock is %.0f days later than the newest stored row, and is not synchronised: nothing is removed by its age until it is",
            away / DAY_S);
    r->doubts = true;
    return false;
}

static bool keeps_all(const struct config_keep *days)
{
    return days->jobs + days->points + days->logs + days->events == 0;
}

void retention_tick(struct retention *r)
{
    if (r->busy || keeps_all(&r->days) || (r->begun && ++r->ticks < HOUR_TICKS))
        return;
    r->begun = true;
    r->ticks = 0;
    if (!clock_is_plausible(r))
        return;
    r->busy = true;
    r->part = RETENTION_JOBS;
    r->after = 0;
    go_on(r);
}
