/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/jobs_report.c - jobs_report(): how a supervisor's records
 * change the job in memory, and the losses that subscribers get. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/jobs/event.h"
#include "daemon/jobs/jobs.h"
#include "daemon/job/best.h"
#include "daemon/job/report.h"
#include "daemon/base/text.h"
#include "proto/err.h"
#include "proto/tier.h"

enum { REQUEUE_S = 2, VITAL_BYTES = 4 << 20 };

int64_t jobs_stored(const struct jobs *jobs, int64_t reported)
{
    return JOBS_FILES_BYTES + (jobs->report_max > 0 && reported > jobs->report_max ? jobs->report_max : reported);
}

bool jobs_keep(struct jobs *jobs, struct job *j, int64_t bytes, bool vital)
{
    bool kept_before = j->row.reported <= jobs->report_max, kept;
    struct user_share *share = user_shares_of(&jobs->shares, j->row.uid);
    int64_t before = jobs_stored(jobs, j->row.reported);

    if (j->row.reported < INT64_MAX / 2)
        j->row.reported += bytes;
    if (share)
        share->stored += jobs_stored(jobs, j->row.reported) - before;
    kept = j->row.reported <= jobs->report_max;
    if (jobs->report_max == 0)
        return true;
    if (kept_before && !kept)
        event_add(jobs->events, j->row.id, "warning", "reports",
                  "the job has reported %lld MiB, the limit of report_max: no further losses, scores and events of it are stored",
                  (long long)(jobs->report_max >> 20));
    return kept || (vital && j->row.reported <= jobs->report_max + VITAL_BYTES);
}

static void tell_losses(struct jobs *jobs, const struct report *rep)
{
    struct text t = { 0 };

    if (!events_wanted(jobs->events, TOPIC_LOSSES))
        return;
    text_addf(&t, "{\"job\":%lld,\"split\":\"%s\",\"step\":%lld,\"tier\":\"%s\",\"epoch\":", (long long)rep->job,
              rep->val ? "val" : "train", (long long)rep->step, tier_name(rep->tier));
    text_real(&t, rep->epoch);
    text_add(&t, ",\"time\":");
    text_real(&t, rep->time);
    text_add(&t, ",\"terms\":{");
    for (int i = 0; i < rep->count; i++) {
        if (i)
            text_add(&t, ",");
        text_json(&t, rep->values[i].name);
        text_add(&t, ":");
        text_real(&t, rep->values[i].num / rep->values[i].den);
    }
    text_add(&t, "}}");
    if (!t.failed)
        events_tell(jobs->events, TOPIC_LOSSES, rep->job, t.p);
    text_free(&t);
}

static bool on_loss(struct jobs *jobs, struct job *j, const struct report *rep)
{
    json_t *split = json_object_get(j->losses, rep->val ? "val" : "train");
    bool obeyed = rep->val && j->row.want_eval;

    for (int i = 0; i < rep->count; i++) {
        double value = rep->values[i].num / rep->values[i].den;

        if (json_object_size(split) >= REPORT_MAX_TERMS && !json_object_get(split, rep->values[i].name))
            continue; /* a job's memory is bounded, even if its losses have many names */
        json_object_set_new_nocheck(split, rep->values[i].name, isfinite(value) ? json_real(value) : json_null());
    }
    if (!rep->val && rep->step > j->row.step)
        j->row.step = rep->step;
    if (rep->images_per_s > 0)
        j->row.images_per_s = rep->images_per_s;
    if (obeyed)
        j->row.want_eval = false;
    jobs->rows += (uint64_t)rep->count;
    job_drop_view(j);
    tell_losses(jobs, rep);
    return obeyed;
}

static bool on_eval(struct jobs *jobs, struct job *j, const struct report *rep)
{
    bool obeyed = j->row.want_eval, better = false;

    for (int i = 0; i < rep->count && !rep->dropped; i++)
        better |= best_take(j->losses, rep->values[i].name, rep->values[i].num, rep->step);
    j->row.want_eval = false;
    if (obeyed || better)
        job_changed(jobs, j);
    return obeyed;
}

struct reload {
    struct jobs *jobs;
    int64_t id;
    struct text losses;
    int rc;
};

static void reload_work(void *arg)
{
    struct reload *r = arg;

    r->rc = store_losses(r->jobs->store, r->id, &r->losses, NULL);
}

static void reload_after(void *arg)
{
    struct reload *r = arg;
    struct job *j = jobs_find(r->jobs, r->id);
    json_t *old = r->rc == 0 && r->losses.p ? json_loads(r->losses.p, 0, NULL) : NULL;
    const json_t *best = j ? json_object_get(j->losses, "best") : NULL;

    if (j)
        j->reloading = false;
    if (j && j->reload_again) {
        json_decref(old);
        jobs_reload_losses(r->jobs, j);
    } else if (j && old) {
        json_object_update(json_object_get(old, "train"), json_object_get(j->losses, "train"));
        json_object_update(json_object_get(old, "val"), json_object_get(j->losses, "val"));
        best_take(old, json_string_value(json_object_get(best, "metric")), json_number_value(json_object_get(best, "value")),
                  json_integer_value(json_object_get(best, "step")));
        json_decref(j->losses);
        j->losses = old;
        job_changed(r->jobs, j);
    } else {
        json_decref(old);
    }
    text_free(&r->losses);
    free(r);
}

/* Reads once at a time, however often a job rewinds. */
void jobs_reload_losses(struct jobs *jobs, struct job *j)
{
    struct reload *r;

    json_object_clear(json_object_get(j->losses, "train"));
    json_object_clear(json_object_get(j->losses, "val"));
    json_object_del(j->losses, "best");
    j->reload_again = j->reloading;
    if (j->reloading || !jobs->turns)
        return;
    r = calloc(1, sizeof *r);
    if (!r)
        return;
    r->jobs = jobs;
    r->id = j->row.id;
    j->reloading = turns_add(jobs->turns, &jobs->own, reload_work, reload_after, r) == 0;
    if (!j->reloading)
        free(r);
}

void jobs_ran(struct job *j, double seconds)
{
    double more = j->row.seconds_before + seconds - j->row.seconds;

    if (!isfinite(more) || more <= 0)
        return;
    j->row.seconds += more;
    j->row.limited += more;
}

void jobs_computed(struct job *j, double cpu_seconds)
{
    double all = j->row.cpu_before + cpu_seconds;

    if (cpu_seconds > 0 && isfinite(all))
        j->row.cpu_seconds = all;
}

static void take_usage(struct job *j, const struct report *rep)
{
    jobs_ran(j, rep->seconds);
    jobs_computed(j, rep->cpu_seconds);
    if (rep->max_rss > j->row.max_rss)
        j->row.max_rss = rep->max_rss;
}

/* Warns about a tier that was asked for and that no step has, since the job has ended. */
static void tell_late_tier(struct jobs *jobs, struct job *j)
{
    if (j->row.want_tier >= 0)
        event_add(jobs->events, j->row.id, "warning", "tier", "tier %s was not applied: the job ended after step %lld",
                  tier_name(j->row.want_tier), (long long)j->row.step);
    else if (j->tier_from > j->row.step)
        event_add(jobs->events, j->row.id, "warning", "tier", "tier %s was to begin with step %lld; the job ended after step %lld",
                  tier_name(j->row.tier), (long long)j->tier_from, (long long)j->row.step);
    j->row.want_tier = -1;
}

/* A rank refuses a tier with an event that names it. A wish for another tier, made since, stays. */
static bool on_event(struct job *j, const struct report *rep)
{
    if (j->row.state == JOB_STARTING && strcmp(rep->label, "waits") == 0)
        snprintf(j->trouble, sizeof j->trouble, "%.255s", rep->text);
    if (strcmp(rep->label, "tier") != 0 || j->row.want_tier < 0 || (rep->tier >= 0 && rep->tier != j->row.want_tier))
        return false;
    j->row.want_tier = -1;
    return true;
}

static void on_end(struct jobs *jobs, struct job *j, const struct report *rep)
{
    enum job_event event = strcmp(rep->kind, "completed") == 0 ? JOB_EV_END_COMPLETED
                           : strcmp(rep->kind, "failed") == 0  ? JOB_EV_END_FAILED
                           : strcmp(rep->kind, "paused") == 0  ? JOB_EV_END_PAUSED
                                                               : JOB_EV_END_CANCELLED;
    struct err err;

    job_json(jobs, j, NULL); /* clients see this until the commit */
    if (job_apply(&j->row, event, rep->text, rep->time, &err) < 0) {
        if (!rep->dropped)
            event_add(jobs->events, j->row.id, "warning", "late_end", "%s", err.msg);
        return;
    }
    j->hidden_until = rep->seq;
    take_usage(j, rep);
    j->row.seconds_before = j->row.seconds; /* the next supervisor may end before it reports an attempt */
    if (rep->attempt > 0 && rep->attempt >= j->attempted &&
        rep->attempt < j->row.attempt) /* it ended in an earlier attempt, before this start */
        j->row.attempt = rep->attempt;
    j->phase[0] = '\0';
    j->row.want_checkpoint = j->row.want_eval = false;
    if (job_is_done(j->row.state))
        tell_late_tier(jobs, j);
    else
        j->row.deaths = 0;
    if (j->row.state == JOB_QUEUED && strcmp(rep->label, "missing") == 0) {
        j->life.not_before = mono_s() + LIFE_BACKOFF_MAX_S;
        snprintf(j->told, sizeof j->told, "%.255s", rep->text);
    } else if (j->row.state == JOB_QUEUED &&
               !j->yields_to) /* it gave its slots back on its own: the reason that kept it from running may need a moment */
        j->life.not_before = mono_s() + REQUEUE_S;
    life_next(&j->life, LIFE_FACT_ENDED, mono_s());
}

/* The supervisor was to end the job because of its deaths, but found a checkpoint with which the job may go on. Its
 * next attempt or that checkpoint, whichever comes first, ends the deadline for leaving: a trainer may take longer than
 * that until its first report. */
static void goes_on(struct job *j)
{
    if (j->row.want == JOB_WANT_CANCEL)
        return;
    j->life.drains = 0;
    if (j->life.phase == LIFE_CONNECTED) /* else it has died since, and that has a deadline of its own */
        j->life.deadline = j->life.obey_by = 0;
}

bool jobs_report(struct jobs *jobs, struct job *j, const struct report *rep)
{
    j->row.last_seq = rep->seq;
    switch (rep->type) {
    case REPORT_LOSS:
        return on_loss(jobs, j, rep);
    case REPORT_CHECKPOINT:
        if (rep->step > j->saved) {
            j->saved = rep->step;
            j->row.deaths = 0;
        }
        goes_on(j);
        j->row.want_checkpoint = false;
        break;
    case REPORT_TIER:
        j->row.tier = rep->tier;
        j->tier_from = rep->step;
        if (j->row.want_tier == rep->tier)
            j->row.want_tier = -1;
        break;
    case REPORT_ATTEMPT:
        if (rep->first)
            j->row.cpu_before = j->row.cpu_seconds;
        if (rep->first)
            j->row.seconds_before = j->row.seconds;
        j->counts = true;
        job_apply(&j->row, JOB_EV_ATTEMPT, NULL, rep->time, NULL);
        j->row.attempt = j->attempted = rep->attempt;
        j->row.step = rep->step;
        j->trouble[0] = '\0';
        goes_on(j);
        break;
    case REPORT_END:
        j->says[0] = '\0';
        on_end(jobs, j, rep);
        break;
    case REPORT_EVAL:
        return on_eval(jobs, j, rep);
    case REPORT_ENDED:
        take_usage(j, rep);
        break;
    case REPORT_EVENT:
        if (!on_event(j, rep))
            return false;
        break;
    case REPORT_DATA:
    case REPORT_IDENTITY:
        return false;
    }
    job_changed(jobs, j);
    return true;
}
