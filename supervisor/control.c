/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/control.c - commands: of detd, the signals that tell this program to stop, and a time limit. */
#include <stdio.h>
#include <string.h>

#include "supervisor/job_impl.h"

enum { CANCEL_S = 30, LEAVE_S = 60, TERM_MS = 5000, MAX_DEADLINE_S = 86400 };

/* SIGTERM first: a trainer may still write what it likes to; SIGKILL follows. */
static void on_deadline(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char cause[100];

    snprintf(cause, sizeof cause, "the ranks did not obey %s in time and were killed", j->want_cancel ? "cancel" : "pause");
    job_log("%s", cause);
    job_event(j, -1, "warning", "stop", cause);
    job_stop_ranks(j, TERM_MS, cause);
    if (j->ranks)
        ranks_kill(j->ranks, SIGTERM);
}

static void send_word(struct job *j, const char *word, const char *tier)
{
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "control");
    line_str(&l, "word", word);
    if (tier)
        line_str(&l, "tier", tier);
    job_to_rank(j, 0, &l);
    job_log("%s%s%s passed to rank 0", word, tier ? " " : "", tier ? tier : "");
}

void job_send_pending(struct job *j)
{
    if (j->state != RUN_GOING)
        return;
    if (j->pending & PENDING_TIER && j->want_tier[0])
        send_word(j, "tier", j->want_tier);
    if (j->pending & PENDING_CHECKPOINT)
        send_word(j, "checkpoint", NULL);
    if (j->pending & PENDING_EVAL)
        send_word(j, "eval", NULL);
    if (j->pending & PENDING_PAUSE)
        send_word(j, "pause", NULL);
    if (j->pending & PENDING_CANCEL)
        send_word(j, "cancel", NULL);
    j->pending = 0;
}

/* A wish to stop. Without ranks it is granted at once; ranks that have not got to `go` have nothing to save. */
static void stop_job(struct job *j, enum job_pending word, double deadline_s)
{
    if (j->state == RUN_BACKOFF) {
        uv_timer_stop(&j->state_timer);
        job_end_stopped(j, "");
    } else if (j->state == RUN_HELLO) {
        job_stop_ranks(j, 0, "stopped before it began");
    } else if (j->state == RUN_GOING) {
        j->pending |= word;
        job_send_pending(j);
        if (deadline_s > 0)
            uv_timer_start(&j->command_timer, on_deadline, (uint64_t)(1000 * deadline_s), 0);
    }
}

/* It is under way. A deadline that comes later, as where its slots are wanted by now, counts; one that is given again, after a reconnect, puts nothing off. */
static void hurry_pause(struct job *j, double deadline_s)
{
    if (j->state == RUN_GOING && deadline_s > 0 && !uv_is_active((uv_handle_t *)&j->command_timer))
        uv_timer_start(&j->command_timer, on_deadline, (uint64_t)(1000 * deadline_s), 0);
}

static void want_tier(struct job *j, const char *tier)
{
    if (!tier || strlen(tier) >= sizeof j->want_tier) {
        job_log("command tier without a tier ignored");
        return;
    }
    if (strcmp(j->want_tier, tier) == 0)
        return; /* given again after a reconnect */
    snprintf(j->want_tier, sizeof j->want_tier, "%s", tier);
    j->pending |= PENDING_TIER;
    job_send_pending(j);
}

void job_take_control(struct job *j, const json_t *msg)
{
    const char *word = json_string_value(json_object_get(msg, "word"));
    const json_t *deadline = json_object_get(msg, "deadline");
    double deadline_s = json_is_number(deadline) ? json_number_value(deadline) : 0;

    if (deadline_s < 0 || deadline_s > MAX_DEADLINE_S)
        deadline_s = MAX_DEADLINE_S;
    if (!word) {
        job_log("a command without a word ignored");
    } else if (strcmp(word, "cancel") == 0 && !j->want_cancel) {
        j->want_cancel = true;
        stop_job(j, PENDING_CANCEL, deadline_s > 0 ? deadline_s : CANCEL_S);
    } else if (strcmp(word, "pause") == 0 && !j->want_pause && !j->want_cancel) {
        j->want_pause = true;
        stop_job(j, PENDING_PAUSE, deadline_s);
    } else if (strcmp(word, "pause") == 0 && !j->want_cancel) {
        hurry_pause(j, deadline_s);
    } else if (strcmp(word, "tier") == 0) {
        want_tier(j, json_string_value(json_object_get(msg, "tier")));
    } else if (strcmp(word, "checkpoint") == 0 || strcmp(word, "eval") == 0) {
        j->pending |= word[0] == 'c' ? PENDING_CHECKPOINT : PENDING_EVAL;
        job_send_pending(j);
    } else if (strcmp(word, "cancel") != 0 && strcmp(word, "pause") != 0) {
        job_log("command '%.40s' is not known and ignored", word);
    }
}

void job_leave(struct job *j)
{
    if (j->leaving)
        return;
    j->leaving = true;
    job_log("told to stop");
    if (j->state == RUN_ENDED)
        uv_stop(j->loop);
    else
        stop_job(j, PENDING_PAUSE, LEAVE_S);
}

double job_seconds(const struct job *j)
{
    return (double)(uv_now(j->loop) - j->began_ms) / 1000;
}

void job_look_at_limit(struct job *j)
{
    double limit = j->spec ? j->spec->run_time_limit : 0;

    if (limit <= 0 || j->overtime || j->leaving || j->want_pause || j->want_cancel || (double)j->options.ran_s + job_seconds(j) < limit)
        return;
    j->overtime = true;
    job_event(j, -1, "info", "limit", "its run.time_limit is over: it writes a checkpoint and ends");
    stop_job(j, PENDING_PAUSE, 0); /* a validation that is under way comes first */
}
