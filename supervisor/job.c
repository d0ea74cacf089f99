#include <errno.h> /* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/report.h"
#include "proto/host/tell.h"
#include "supervisor/job_impl.h"
#include "supervisor/left.h"
#include "supervisor/published.h"
#include "supervisor/spawn.h"

enum {
    HELLO_MS = 120000,  /* every rank has to say hello within */
    END_ACK_MS = 10000, /* detd has so long to ack the outcome; later it asks the spool */
    BACKOFF_MAX_S = 30,
    LATE_MS = 1000, /* no attempt begins before what is known of the last one is written */
    LEFT_MS = 50,   /* between two looks at what ranks left behind */
    LEFT_LOOKS = 200,
    STAYS_MS = 20000,    /* likewise, at ranks that were killed and are there */
    STAYS_LOOKS = 30,    /* of which one is told */
    OTHERS_MS = 3000,    /* after the first rank broke, the others may still say what they saw */
    ROOM_BYTES = 1 << 20 /* kept free in the spool for records of our own when ranks fill it */
};

static void start_attempt(struct job *j);
static void clean_up(struct job *j);
static void arm(struct job *j, uv_timer_cb cb, unsigned ms);

double job_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void job_log(const char *fmt, ...)
{
    char prefix[48], text[TELL_LINE_BYTES];
    time_t now = time(NULL);
    struct tm tm;
    va_list ap;

    strftime(prefix, sizeof prefix, "%Y-%m-%d %H:%M:%S UTC detd-job: ", gmtime_r(&now, &tm));
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell_line(prefix, "%s", text);
}

void job_fatal(struct job *j, const struct err *err)
{
    if (j->fatal.code)
        return;
    j->fatal = *err;
    if (j->ranks)
        ranks_kill(j->ranks, SIGKILL);
    uv_stop(j->loop);
}

/* ---- records of attempts ---- */

static void put_outcome(struct job *j, struct line *l, const char *outcome, const char *reason, const char *class)
{
    struct ranks_usage u;

    job_usage(j, &u);
    line_int(l, "attempt", j->attempt);
    line_str(l, "outcome", outcome);
    line_str(l, "reason", reason);
    line_str(l, "class", class);
    line_real(l, "time", job_time());
    line_real(l, "cpu_seconds", u.cpu_seconds);
    line_real(l, "seconds", job_seconds(j));
    line_int(l, "max_rss", u.max_rss);
}

static void append_ended(struct job *j, const char *outcome, const char *reason, const char *class)
{
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "ended");
    put_outcome(j, &l, outcome, reason, class);
    job_append(j, &l, NULL);
    job_log("attempt %d %s: %s", j->attempt, outcome, reason);
}

void job_to_rank(struct job *j, int rank, struct line *l)
{
    struct err err = { 0 };

    if (line_done(l, &err) < 0 || ranks_send(j->ranks, rank, l->buf, l->len, &err) < 0)
        job_log("message to rank %d: %s", rank, err.msg);
}

/* ---- the end ---- */

static void on_end_waited(uv_timer_t *timer)
{
    struct job *j = timer->data;

    job_log("detd did not ack the outcome; it finds it in the spool");
    uv_stop(j->loop);
}

static void wait_for_ack(struct job *j)
{
    j->state = RUN_ENDED;
    if (spool_acked(j->spool) >= j->end_seq || (j->leaving && !link_is_up(j->link))) /* a node that shuts down does not wait */
        uv_stop(j->loop);
    else
        arm(j, on_end_waited, END_ACK_MS);
}

void job_end_written(struct job *j)
{
    struct err err = { 0 };

    if (spool_sync(j->spool, &err) < 0)
        job_fatal(j, &err);
    else if (strcmp(j->outcome, "paused") != 0)
        job_tell_command(j, "end", j->outcome, j->reason);
    wait_for_ack(j);
}

void job_end(struct job *j, const char *outcome, const char *reason, const char *class)
{
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "end");
    put_outcome(j, &l, outcome, reason, class);
    job_append(j, &l, &j->end_seq);
    j->final = strcmp(outcome, "paused") != 0;
    if (j->fatal.code)
        return;
    job_log("job %s%s%s", outcome, reason[0] ? ": " : "", reason);
    snprintf(j->outcome, sizeof j->outcome, "%s", outcome);
    snprintf(j->reason, sizeof j->reason, "%s", reason);
    uv_timer_stop(&j->state_timer);
    j->state = RUN_ENDED;
    if (!j->late)
        job_end_written(j);
}

void job_end_stopped(struct job *j, const char *reason)
{
    char text[120];

    if (j->overtime && !j->want_cancel) { /* a pause that came before would have kept it from that */
        snprintf(text, sizeof text, "it ran for %.10g s, its run.time_limit; its newest checkpoint is of step %lld",
                 j->spec->run_time_limit, (long long)j->saved);
        job_end(j, "cancelled", text, "");
        return;
    }
    job_end(j, j->want_cancel ? "cancelled" : "paused",
            j->leaving && !j->want_cancel && !j->want_pause ? "detd-job was told to stop" : reason, "");
}

/* ---- one attempt ---- */

static void arm(struct job *j, uv_timer_cb cb, unsigned ms)
{
    uv_timer_stop(&j->state_timer);
    uv_timer_start(&j->state_timer, cb, ms, 0);
}

static void on_stays(uv_timer_t *timer);

static void kill_all(struct job *j)
{
    for (int i = 0; i < j->nranks; i++) {
        struct job_rank *r = &j->rank[i];

        if (r->gone || ranks_pid(j->ranks, i) == 0)
            continue;
        r->out.killed = true;
        if (r->closed && j->order == 0 && !j->cause[0]) /* nobody else is known to be at fault */
            snprintf(j->cause, sizeof j->cause, "rank %d closed its descriptor 3 and went on without it", i);
    }
    ranks_kill(j->ranks, SIGKILL);
    arm(j, on_stays, STAYS_MS);
}

/* A process in uninterruptible sleep, as of a disk that does not answer, dies when that ends. Nothing goes on before. */
static void on_stays(uv_timer_t *timer)
{
    struct job *j = timer->data;
    int stays = -1, others = 0;
    char who[128];

    for (int i = 0; i < j->nranks; i++) {
        bool lives = ranks_pid(j->ranks, i) != 0; /* one that is dead may have to be heard to its end */

        others += lives && stays >= 0;
        if (lives && stays < 0)
            stays = i;
    }
    if (stays >= 0) {
        left_name(ranks_pid(j->ranks, stays), who, sizeof who);
        snprintf(j->trouble, sizeof j->trouble, "rank %d was killed and does not end: %s", stays, who);
        if (others > 0)
            snprintf(j->trouble + strlen(j->trouble), sizeof j->trouble - strlen(j->trouble), "; %d others of the job likewise", others);
        if (j->stay_looks++ % STAYS_LOOKS == 0)
            job_event(j, stays, "warning", "stuck", j->trouble);
    }
    kill_all(j);
}

static void on_grace_over(uv_timer_t *timer)
{
    kill_all(timer->data);
}

void job_stop_ranks(struct job *j, unsigned grace_ms, const char *cause)
{
    if (j->state != RUN_HELLO && j->state != RUN_GOING)
        return;
    j->state = RUN_STOPPING;
    snprintf(j->cause, sizeof j->cause, "%s", cause);
    if (grace_ms > 0)
        arm(j, on_grace_over, grace_ms);
    else
        kill_all(j);
}

static void on_broken(void *arg, int rank, const char *why)
{
    struct job *j = arg;
    char text[OUTCOME_TEXT];

    snprintf(text, sizeof text, "rank %d: malformed report: %s", rank, why);
    job_stop_ranks(j, 0, text);
}

static bool spool_ready(void *arg)
{
    struct job *j = arg;

    return !j->fatal.code && !j->late && spool_has_room(j->spool, ROOM_BYTES);
}

static void on_no_hello(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char text[OUTCOME_TEXT];
    int missing = 0;

    if (!spool_ready(j)) { /* they may have said it */
        arm(j, on_no_hello, HELLO_MS);
        return;
    }
    while (j->rank[missing].hello)
        missing++;
    snprintf(text, sizeof text, "rank %d hangs in phase starting: no hello within %d s", missing, HELLO_MS / 1000);
    j->hung = true;
    job_event(j, missing, "error", "hang", text);
    job_tell_command(j, "hang", "", text);
    job_stop_ranks(j, 0, text);
}

static void on_backoff_over(uv_timer_t *timer)
{
    struct job *j = timer->data;

    if (j->late)
        arm(j, on_backoff_over, LATE_MS);
    else
        start_attempt(j);
}

static unsigned backoff_ms(int tries)
{
    unsigned s = tries > 5 ? BACKOFF_MAX_S : 1u << (tries > 0 ? tries - 1 : 0);

    return 1000 * (s > BACKOFF_MAX_S ? BACKOFF_MAX_S : s);
}

/* Ranks say again what they begin from: only a newer one is progress. */
void job_saved(struct job *j, int64_t step)
{
    if (step <= j->saved)
        return;
    j->saved = step;
    j->failures = j->missing = 0;
}

/* Who died between publishing a checkpoint and saying so has got on all the same. Its next attempt says so. */
static void look_at_published(struct job *j)
{
    int64_t before = j->saved;

    job_saved(j, published_newest());
    j->unheard = j->unheard || (j->saved > before && j->saved > j->options.saved);
}

static void next_attempt(struct job *j, int tries)
{
    j->attempt++;
    j->state = RUN_BACKOFF;
    arm(j, on_backoff_over, backoff_ms(tries));
}

/* No failure of the job: it waits till the file is back, after a few tries without slots. */
static void after_missing(struct job *j, const struct outcome *o)
{
    char text[OUTCOME_TEXT + 64];

    if (++j->missing < JOB_MISSING_TRIES) {
        next_attempt(j, j->missing);
        return;
    }
    snprintf(text, sizeof text, "it waits for a file that is missing: %s", o->reason);
    job_end(j, "paused", text, o->class);
}

static void after_failure(struct job *j, const struct outcome *o)
{
    char text[OUTCOME_TEXT + 100];

    look_at_published(j);
    if (o->missing) {
        after_missing(j, o);
        return;
    }
    j->failures++;
    if (o->retry && !(j->hung && strcmp(j->spec->run_on_hang, "fail") == 0) && j->failures <= j->spec->run_restarts) {
        if (!j->hung)
            job_tell_command(j, "failure", "failed", o->reason);
        next_attempt(j, j->failures);
        return;
    }
    if (o->retry && j->failures > 1)
        snprintf(text, sizeof text, "%s (failure %d in a row without a newer checkpoint)", o->reason, j->failures);
    else
        snprintf(text, sizeof text, "%s", o->reason);
    job_end(j, "failed", text, o->class);
}

/* What a wish to stop makes of an attempt that failed on the way: the wish is granted, from the last checkpoint. */
static bool granted_anyway(struct job *j, const struct outcome *o)
{
    if (!o->retry || (!j->want_cancel && !j->want_pause && !j->leaving && !j->overtime))
        return false;
    append_ended(j, "stopped", o->reason, "");
    job_end_stopped(j, "");
    return true;
}

static void attempt_over(struct job *j)
{
    struct outcome_rank ranks[JOB_MAX_RANKS];
    struct outcome o = { 0 };

    for (int i = 0; i < j->nranks; i++)
        ranks[i] = j->rank[i].out;
    outcome_decide(ranks, j->nranks, j->cause, &o);
    job_send_status(j); /* the last of these ranks */
    job_usage(j, &j->usage);
    ranks_free(j->ranks);
    j->ranks = NULL;
    watch_free(j->watch);
    j->watch = NULL;
    uv_timer_stop(&j->state_timer);
    uv_timer_stop(&j->command_timer);
    if (strcmp(o.outcome, "failed") == 0) {
        if (granted_anyway(j, &o))
            return;
        if (!o.missing || j->started) /* else each look at a missing file would be told */
            append_ended(j, "failed", o.reason, o.class);
        after_failure(j, &o);
    } else if (strcmp(o.outcome, "paused") == 0) {
        job_end_stopped(j, o.reason);
    } else {
        job_end(j, o.outcome, o.reason, "");
    }
}

static void on_left(uv_timer_t *timer)
{
    clean_up(timer->data);
}

/* Processes that ranks started hold the job's lock and memory of its GPUs: the attempt is over when they are gone. */
static void clean_up(struct job *j)
{
    char text[128], told[200];
    int left = left_kill(text, sizeof text);

    if (left > 0 && j->left_looks++ < LEFT_LOOKS) {
        arm(j, on_left, LEFT_MS);
        return;
    }
    if (left > 0) {
        snprintf(told, sizeof told, "%s of the job was killed and stays", text);
        job_event(j, -1, "warning", "left", told);
    }
    attempt_over(j);
}

/* Mostly the last moment of a process; but one that lives on cannot be heard any more. */
static void on_rank_closed(void *arg, int rank)
{
    struct job *j = arg;

    j->rank[rank].closed = true;
    if (!j->rank[rank].out.ended)
        job_stop_ranks(j, OTHERS_MS, "");
}

static void on_gone(void *arg, int rank, int status)
{
    struct job *j = arg;
    struct job_rank *r = &j->rank[rank];
    char how[100];

    r->gone = true;
    r->out.left = true;
    r->out.status = status;
    if (!r->out.ended) {
        r->out.order = j->order++;
        outcome_describe(status, how, sizeof how);
        if (!r->out.killed)
            job_log("attempt %d: rank %d %s", j->attempt, rank, how);
        job_stop_ranks(j, OTHERS_MS, "");
    }
    for (int i = 0; i < j->nranks; i++)
        if (!j->rank[i].gone)
            return;
    j->left_looks = j->stay_looks = 0;
    j->trouble[0] = '\0';
    if (!j->fatal.code)
        clean_up(j);
}

/* What the system refuses may pass, and is no failure of the job. */
static void wait_refused(struct job *j, const struct err *err, uv_timer_cb again)
{
    if (strcmp(j->refusal, err->msg) != 0)
        job_event(j, -1, "warning", "waits", err->msg);
    job_log("cannot start yet: %s", err->msg);
    snprintf(j->refusal, sizeof j->refusal, "%s", err->msg);
    j->state = RUN_BACKOFF;
    arm(j, again, backoff_ms(++j->refusals));
}

static void start_attempt(struct job *j)
{
    struct ranks_config config = { .loop = j->loop,
                                   .job_dir = j->options.job_dir,
                                   .nranks = j->nranks,
                                   .attempt = j->attempt,
                                   .worker_path = j->options.worker,
                                   .worker_fd = j->worker_fd,
                                   .plugin_fd = j->plugin_fd,
                                   .lock_fd = j->options.lock_fd,
                                   .env = j->env,
                                   .gpus = j->options.gpus,
                                   .line = job_take_line,
                                   .broken = on_broken,
                                   .closed = on_rank_closed,
                                   .gone = on_gone,
                                   .ready = spool_ready,
                                   .arg = j };
    struct outcome o = { .class = "fault", .retry = true };
    struct err err = { 0 };

    memset(j->rank, 0, sizeof j->rank);
    memset(&j->rate, 0, sizeof j->rate);
    j->started = j->hung = false;
    j->cause[0] = j->nccl_id[0] = j->waits[0] = '\0';
    j->order = 0;
    if (j->want_tier[0]) /* asked of the attempt before, and not agreed */
        j->pending |= PENDING_TIER;
    j->watch = watch_new(j->nranks);
    if (j->watch && ranks_start(&config, &j->ranks, &err) == 0) {
        j->refusals = 0;
        j->refusal[0] = '\0';
        j->state = RUN_HELLO;
        job_log("attempt %d: %d rank%s started", j->attempt, j->nranks, j->nranks == 1 ? "" : "s");
        arm(j, on_no_hello, HELLO_MS);
        return;
    }
    watch_free(j->watch);
    j->watch = NULL;
    if (!err.code)
        err_set(&err, -ENOMEM, "out of memory");
    if (err_is_shortage(&err)) {
        wait_refused(j, &err, on_backoff_over);
        return;
    }
    snprintf(o.reason, sizeof o.reason, "%s", err.msg);
    append_ended(j, "failed", o.reason, "fault");
    after_failure(j, &o);
}

/* ---- beginning ---- */

/* Whether the job only ends here. */
static bool is_drained(const struct job *j)
{
    return j->options.drain && (strcmp(j->options.drain, "failed") != 0 || !j->unheard);
}

/* An attempt without an end: the detd-job before this one was lost, and its ranks with it. */
static void close_lost_attempt(struct job *j, int lost)
{
    int next = j->attempt;

    j->attempt = lost;
    append_ended(j, "failed", "detd-job was lost", "fault");
    if (!is_drained(j))
        job_tell_command(j, "failure", "failed", "detd-job was lost");
    j->attempt = next;
    look_at_published(j);
    j->failures++;
    j->lost = true;
}

static void start_job(struct job *j);

static void on_locks_over(uv_timer_t *timer)
{
    start_job(timer->data);
}

static void start_job(struct job *j)
{
    struct outcome o = { .outcome = "failed", .class = "fault", .reason = "detd-job was lost", .retry = true };
    struct err err = { 0 };
    int rc = job_lock_gpus(j, &err);

    if (rc < 0 && rc != -EWOULDBLOCK && err_is_system(&err)) {
        wait_refused(j, &err, on_locks_over);
        return;
    }
    if (rc < 0) { /* busy is no fault of the job: it is queued again, and the next grant may be of other GPUs */
        job_end(j, rc == -EWOULDBLOCK ? "paused" : "failed", err.msg, rc == -EWOULDBLOCK ? "" : "fault");
        return;
    }
    if (!j->lost || j->failures <= j->spec->run_restarts) {
        start_attempt(j);
        return;
    }
    j->failures--; /* after_failure() counts it */
    after_failure(j, &o);
}

static void on_refusal_over(uv_timer_t *timer);

/* What the spec says is the job's outcome: another look finds the same. What the system refuses may pass. */
static void prepare(struct job *j)
{
    struct err err = { 0 };

    if (job_read(j, &err) == 0) {
        start_job(j);
    } else if (!err_is_system(&err)) {
        job_end(j, "failed", err.msg, "user");
    } else {
        wait_refused(j, &err, on_refusal_over);
    }
}

static void on_refusal_over(uv_timer_t *timer)
{
    prepare(timer->data);
}

/* detd gives no number to who is only to end the job: where the spool does not tell of it any more, this one is the lost attempt's. */
static void go_on(struct job *j, int lost)
{
    if (j->options.drain && !lost && j->attempt == j->options.attempt) {
        j->attempt++;
        close_lost_attempt(j, j->options.attempt);
    }
    prepare(j);
}

void job_begin(struct job *j, int lost)
{
    j->began_ms = uv_now(j->loop);
    if (j->end_seq) {
        wait_for_ack(j);
        return;
    }
    if (spool_lost(j->spool))
        job_event(j, -1, "error", "spool_damaged", "a spool file was damaged; reports that detd had not committed are lost");
    if (lost)
        close_lost_attempt(j, lost);
    else
        look_at_published(j);
    if (is_drained(j))
        job_end(j, j->options.drain, j->options.reason, strcmp(j->options.drain, "failed") == 0 ? "fault" : "");
    else
        go_on(j, lost);
}
