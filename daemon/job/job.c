#include "daemon/job/job.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "proto/err.h"

#define X(ident, name, live, done) { name, live, done },
static const struct {
    const char *name;
    bool live, done;
} states[] = { JOB_STATES(X) };
#undef X
#define X(ident, name) name,
static const char *const events[] = { JOB_EVENTS(X) };
#undef X
static const char *const kinds[JOB_KINDS] = { "train", "verify", "eval", "program" };
static const char *const wants[] = { "run", "pause", "cancel" };

/* Values beside the next state. NO: the event is refused. SAME: the state holds already. DEPENDS: the user's present
 * wish decides. */
enum { NO = -1, SAME = -2, DEPENDS = -3 };

#define Q JOB_QUEUED
#define S JOB_STARTING
#define R JOB_RUNNING
#define T JOB_STOPPING
#define P JOB_PAUSED
#define C JOB_COMPLETED
#define F JOB_FAILED
#define K JOB_CANCELLED
/* clang-format off */
static const short next_state[JOB_EVENT_COUNT][JOB_STATE_COUNT] = {
    /*                        queued starting running stopping paused  completed failed cancelled */
    [JOB_EV_PAUSE]         = { P,    T,       T,      SAME,    SAME,   NO,       NO,    NO },
    [JOB_EV_RESUME]        = { SAME, SAME,    SAME,   T,       Q,      NO,       Q,     NO },
    [JOB_EV_CANCEL]        = { K,    T,       T,      T,       K,      NO,       NO,    SAME },
    [JOB_EV_GRANT]         = { S,    NO,      NO,     NO,      NO,     NO,       NO,    NO },
    [JOB_EV_ATTEMPT]       = { NO,   R,       R,      T,       NO,     NO,       NO,    NO },
    [JOB_EV_RETRY]         = { NO,   S,       S,      T,       NO,     NO,       NO,    NO },
    [JOB_EV_END_COMPLETED] = { NO,   C,       C,      C,       NO,     NO,       NO,    NO },
    [JOB_EV_END_FAILED]    = { F,    F,       F,      DEPENDS, NO,     NO,       NO,    NO },
    [JOB_EV_END_CANCELLED] = { NO,   K,       K,      K,       NO,     NO,       NO,    NO },
    [JOB_EV_END_PAUSED]    = { NO,   DEPENDS, DEPENDS, DEPENDS, NO,    NO,       NO,    NO },
    [JOB_EV_EXTEND]        = { NO,   NO,      NO,      NO,      NO,    Q,        NO,    NO },
};
/* clang-format on */
#undef Q
#undef S
#undef R
#undef T
#undef P
#undef C
#undef F
#undef K

/* A job that stops on request ends as the request says, whichever came first. A failure during a cancel gives a
 * cancelled job. If a supervisor stopped at a checkpoint without a request for a pause, the job is queued again. */
static enum job_state state_by_want(const struct job_row *row, enum job_event event)
{
    if (row->want == JOB_WANT_CANCEL)
        return JOB_CANCELLED;
    if (event == JOB_EV_END_FAILED)
        return JOB_FAILED;
    return row->want == JOB_WANT_PAUSE ? JOB_PAUSED : JOB_QUEUED;
}

static int refuse(const struct job_row *row, enum job_event event, struct err *err)
{
    const char *why = row->want == JOB_WANT_CANCEL && row->state == JOB_STOPPING ? "being cancelled" : states[row->state].name;

    return err_field(err, ERR_STATE, "id", "job %lld is %s: %s is not possible", (long long)row->id, why, events[event]);
}

bool job_has_unread(const struct job_row *row)
{
    return strncmp(row->reason, JOB_SPOOL_LOST, strlen(JOB_SPOOL_LOST)) == 0 ||
           strncmp(row->reason, JOB_SPOOL_UNREAD, strlen(JOB_SPOOL_UNREAD)) == 0;
}

/* A user's wish reads no reports, so a reason that says "unread" stays until the job runs again. */
static bool keeps_reason(const struct job_row *row, enum job_event event)
{
    return job_has_unread(row) && (event == JOB_EV_PAUSE || event == JOB_EV_RESUME || event == JOB_EV_CANCEL);
}

static void change_want(struct job_row *row, enum job_event event)
{
    if (event == JOB_EV_PAUSE)
        row->want = JOB_WANT_PAUSE;
    else if (event == JOB_EV_RESUME)
        row->want = JOB_WANT_RUN;
    else if (event == JOB_EV_CANCEL)
        row->want = JOB_WANT_CANCEL;
}

/* The job had ended and is to run once more: failures before its end no longer count against it. */
static void begin_again(struct job_row *row)
{
    row->want = JOB_WANT_RUN;
    row->deaths = 0;
    row->limited = row->held = 0;
    row->backfill = false;
}

static void change_times(struct job_row *row, double now)
{
    if (row->state == JOB_STARTING && row->started == 0)
        row->started = now;
    row->ended = job_is_done(row->state) ? now : 0;
}

int job_apply(struct job_row *row, enum job_event event, const char *reason, double now, struct err *err)
{
    int next = next_state[event][row->state];

    if (next == NO || (row->want == JOB_WANT_CANCEL && (event == JOB_EV_PAUSE || event == JOB_EV_RESUME)))
        return refuse(row, event, err);
    change_want(row, event);
    if (next == SAME)
        return 0;
    if (job_is_done(row->state) && !job_is_done((enum job_state)next))
        begin_again(row);
    row->state = next == DEPENDS ? state_by_want(row, event) : (enum job_state)next;
    change_times(row, now);
    if (event != JOB_EV_ATTEMPT && !keeps_reason(row, event))
        snprintf(row->reason, sizeof row->reason, "%s", reason ? reason : "");
    return 0;
}

bool job_is_live(enum job_state s)
{
    return states[s].live;
}

bool job_is_done(enum job_state s)
{
    return states[s].done;
}

const char *job_state_name(enum job_state s)
{
    return states[s].name;
}

static int find(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (name && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

int job_state_parse(const char *name)
{
    for (int i = 0; i < JOB_STATE_COUNT; i++)
        if (name && strcmp(states[i].name, name) == 0)
            return i;
    return -1;
}

const char *job_kind_name(enum job_kind kind)
{
    return kinds[kind];
}

enum job_kind job_kind_parse(const char *name)
{
    int k = find(name, kinds, JOB_KINDS);

    return k < 0 ? JOB_TRAINS : (enum job_kind)k;
}

const char *job_want_name(enum job_want w)
{
    return wants[w];
}

enum job_want job_want_parse(const char *name)
{
    int w = find(name, wants, 3);

    return w < 0 ? JOB_WANT_RUN : (enum job_want)w;
}
