#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "proto/report.h"
#include "supervisor/job_impl.h"
#include "supervisor/spawn.h"

enum {
    HELLO_MS = 120000,  /* every rank has to say hello within */
    END_ACK_MS = 10000, /* detd has so long to ack the outcome; later it asks the spool */
    BACKOFF_MAX_S = 30,
    ROOM_BYTES = 1 << 20, /* kept free in the spool for records of our own when ranks fill it */
    SPEC_ROOM = 1 << 20
};

static void start_attempt(struct job *j);
static void arm(struct job *j, uv_timer_cb cb, unsigned ms);

double job_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-6 * (double)(t.tv_nsec / 1000);
}

void job_log(const char *fmt, ...)
{
    char when[32], text[1200];
    time_t now = time(NULL);
    struct tm tm;
    va_list ap;

    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", gmtime_r(&now, &tm));
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s UTC detd-job: %s\n", when, text);
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

/* ---- records ---- */

void job_append_text(struct job *j, const char *text, size_t len)
{
    struct err err = { 0 };

    if (spool_append(j->spool, text, len, NULL, &err) < 0)
        job_fatal(j, &err);
    else if (j->link)
        link_kick(j->link);
}

void job_append(struct job *j, struct line *l, uint64_t *ret_seq)
{
    struct err err = { 0 };

    if (line_done(l, &err) < 0 || spool_append(j->spool, l->buf, l->len - 1, ret_seq, &err) < 0)
        job_fatal(j, &err);
    else if (j->link)
        link_kick(j->link);
}

void job_event(struct job *j, int rank, const char *level, const char *kind, const char *text)
{
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "event");
    line_str(&l, "level", level);
    line_str(&l, "kind", kind);
    line_str(&l, "text", text);
    line_real(&l, "time", job_time());
    if (rank >= 0)
        line_int(&l, "rank", rank);
    else
        line_null(&l, "rank");
    line_int(&l, "attempt", j->attempt);
    job_append(j, &l, NULL);
}

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
    j->state = JOB_ENDED;
    if (spool_acked(j->spool) >= j->end_seq)
        uv_stop(j->loop);
    else
        arm(j, on_end_waited, END_ACK_MS);
}

void job_end(struct job *j, const char *outcome, const char *reason, const char *class)
{
    struct err err = { 0 };
    struct line l;

    line_begin(&l, j->record, sizeof j->record, "end");
    put_outcome(j, &l, outcome, reason, class);
    job_append(j, &l, &j->end_seq);
    if (j->fatal.code)
        return;
    if (spool_sync(j->spool, &err) < 0)
        job_fatal(j, &err);
    job_log("job %s%s%s", outcome, reason[0] ? ": " : "", reason);
    wait_for_ack(j);
}

/* ---- one attempt ---- */

static void arm(struct job *j, uv_timer_cb cb, unsigned ms)
{
    uv_timer_stop(&j->state_timer);
    uv_timer_start(&j->state_timer, cb, ms, 0);
}

static void kill_all(struct job *j)
{
    for (int i = 0; i < j->nranks; i++)
        if (!j->rank[i].gone && ranks_pid(j->ranks, i) > 0)
            j->rank[i].out.killed = true;
    ranks_kill(j->ranks, SIGKILL);
}

static void on_grace_over(uv_timer_t *timer)
{
    kill_all(timer->data);
}

void job_stop_ranks(struct job *j, unsigned grace_ms, const char *cause)
{
    if (j->state != JOB_HELLO && j->state != JOB_RUNNING)
        return;
    j->state = JOB_STOPPING;
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

static void on_no_hello(uv_timer_t *timer)
{
    struct job *j = timer->data;
    char text[OUTCOME_TEXT];
    int missing = 0;

    while (j->rank[missing].hello)
        missing++;
    snprintf(text, sizeof text, "rank %d hangs in phase starting: no hello within %d s", missing, HELLO_MS / 1000);
    j->hung = true;
    job_event(j, missing, "error", "hang", text);
    job_stop_ranks(j, 0, text);
}

static bool spool_ready(void *arg)
{
    struct job *j = arg;

    return !j->fatal.code && spool_has_room(j->spool, ROOM_BYTES);
}

static void on_backoff_over(uv_timer_t *timer)
{
    start_attempt(timer->data);
}

static void next_attempt(struct job *j)
{
    unsigned wait_s = j->failures > 5 ? BACKOFF_MAX_S : 1u << (j->failures > 0 ? j->failures - 1 : 0);

    j->attempt++;
    j->state = JOB_BACKOFF;
    arm(j, on_backoff_over, 1000 * (wait_s > BACKOFF_MAX_S ? BACKOFF_MAX_S : wait_s));
}

static void after_failure(struct job *j, const struct outcome *o)
{
    char text[OUTCOME_TEXT + 100];

    j->failures++;
    if (o->retry && !(j->hung && strcmp(j->spec->run_on_hang, "fail") == 0) && j->failures <= j->spec->run_restarts) {
        next_attempt(j);
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
    if (!o->retry || (!j->want_cancel && !j->want_pause && !j->leaving))
        return false;
    append_ended(j, "stopped", o->reason, "");
    if (j->want_cancel)
        job_end(j, "cancelled", "", "");
    else if (j->want_pause)
        job_end(j, "paused", "", "");
    else
        uv_stop(j->loop);
    return true;
}

static void attempt_over(struct job *j)
{
    struct outcome_rank ranks[JOB_MAX_RANKS];
    struct outcome o;

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
        append_ended(j, "failed", o.reason, o.class);
        after_failure(j, &o);
    } else if (j->leaving && strcmp(o.outcome, "paused") == 0 && !j->want_pause) {
        append_ended(j, "stopped", "detd-job was told to stop", "");
        uv_stop(j->loop);
    } else {
        job_end(j, o.outcome, o.reason, "");
    }
}

static void on_gone(void *arg, int rank, int status)
{
    enum { OTHERS_MS = 3000 };
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
        job_stop_ranks(j, OTHERS_MS, ""); /* the others may still say what they saw */
    }
    for (int i = 0; i < j->nranks; i++)
        if (!j->rank[i].gone)
            return;
    if (!j->fatal.code)
        attempt_over(j);
}

static void start_attempt(struct job *j)
{
    struct ranks_config config = { .loop = j->loop,
                                   .job_dir = j->options.job_dir,
                                   .nranks = j->nranks,
                                   .attempt = j->attempt,
                                   .worker_path = j->options.worker,
                                   .worker_fd = j->worker_fd,
                                   .lock_fd = j->options.lock_fd,
                                   .env = j->env,
                                   .gpus = j->options.gpus,
                                   .line = job_take_line,
                                   .broken = on_broken,
                                   .gone = on_gone,
                                   .ready = spool_ready,
                                   .arg = j };
    struct outcome o = { .class = "fault", .retry = true };
    struct err err = { 0 };

    memset(j->rank, 0, sizeof j->rank);
    memset(&j->rate, 0, sizeof j->rate);
    j->started = j->hung = false;
    j->cause[0] = j->nccl_id[0] = '\0';
    j->order = 0;
    if (j->want_tier[0]) /* asked of the attempt before, and not agreed */
        j->pending |= PENDING_TIER;
    j->watch = watch_new(j->nranks);
    if (j->watch && ranks_start(&config, &j->ranks, &err) == 0) {
        j->state = JOB_HELLO;
        job_log("attempt %d: %d rank%s started", j->attempt, j->nranks, j->nranks == 1 ? "" : "s");
        arm(j, on_no_hello, HELLO_MS);
        return;
    }
    watch_free(j->watch);
    j->watch = NULL;
    snprintf(o.reason, sizeof o.reason, "%s", err.code ? err.msg : "out of memory");
    append_ended(j, "failed", o.reason, "fault");
    after_failure(j, &o);
}

/* ---- detd ---- */

static int on_welcome(void *arg, const json_t *msg, struct err *err)
{
    struct job *j = arg;
    const char *store_id = json_string_value(json_object_get(msg, "store_id"));
    json_int_t last = json_integer_value(json_object_get(msg, "last_seq"));
    json_t *words = json_object_get(msg, "control"), *word;
    const char *known = spool_store_id(j->spool);
    size_t i;
    int rc = 0;

    if (!store_id || !store_id[0])
        return err_set(err, ERR_PROTO, "welcome: store_id is missing");
    if (known[0] && strcmp(known, store_id) != 0)
        return err_set(err, ERR_STATE, "detd has another database (store %s, the spool belongs to %s); reports are kept", store_id, known);
    if (last < 0 || (uint64_t)last > spool_last(j->spool))
        return err_set(err, ERR_STATE, "detd has report %lld of this job, the spool ends at %llu; reports are kept", (long long)last,
                       (unsigned long long)spool_last(j->spool));
    if (!known[0])
        rc = spool_set_store_id(j->spool, store_id, err);
    if (rc < 0)
        return rc;
    spool_ack(j->spool, (uint64_t)last);
    j->status[0] = '\0';
    job_log("connected to detd, which has %lld of %llu reports", (long long)last, (unsigned long long)spool_last(j->spool));
    json_array_foreach (words, i, word) {
        job_take_control(j, word);
    }
    return 0;
}

static void on_control(void *arg, const json_t *msg)
{
    job_take_control(arg, msg);
}

static void on_acked(void *arg)
{
    struct job *j = arg;

    if (j->state == JOB_ENDED && spool_acked(j->spool) >= j->end_seq)
        uv_stop(j->loop);
    else if (j->ranks)
        ranks_resume(j->ranks);
}

static void on_trouble(void *arg, const char *text)
{
    (void)arg;
    job_log("%s", text);
}

/* ---- opening ---- */

static bool is_type(const char *payload, const char *type)
{
    char head[32];

    snprintf(head, sizeof head, "{\"type\":\"%s\"", type);
    return strncmp(payload, head, strlen(head)) == 0;
}

/* What the spool tells about the attempts before: the last number, an attempt that no record ended, failures in a row, an outcome that
 * detd has not committed. Records that are acked but not yet overwritten count too. */
static int read_history(struct job *j, int *ret_open, struct err *err)
{
    struct spool_cursor c;
    const char *text;
    uint64_t seq;
    size_t len;
    int rc = spool_seek(j->spool, 0, &c, err);

    *ret_open = 0;
    while (rc == 0 && (rc = spool_next(j->spool, &c, &text, &len, &seq, err)) == 1) {
        bool attempt = is_type(text, "attempt"), ended = is_type(text, "ended"), end = is_type(text, "end");
        json_t *rec = attempt || ended || end ? json_loadb(text, len, 0, NULL) : NULL;
        int n = (int)json_integer_value(json_object_get(rec, "attempt"));
        const char *outcome = json_string_value(json_object_get(rec, "outcome"));

        rc = 0;
        if (rec && n >= j->attempt)
            j->attempt = n + 1;
        if (attempt)
            *ret_open = n;
        if (ended || end)
            *ret_open = 0;
        if (ended && outcome && strcmp(outcome, "failed") == 0)
            j->failures++;
        if (end || is_type(text, "checkpoint"))
            j->failures = 0;
        j->end_seq = end && seq > j->options.last_seq ? seq : 0;
        json_decref(rec);
    }
    return rc;
}

/* An attempt without an end: the detd-job before this one was lost, and its ranks with it. */
static void close_lost_attempt(struct job *j, int lost)
{
    int next = j->attempt;

    j->attempt = lost;
    append_ended(j, "failed", "detd-job was lost", "fault");
    j->attempt = next;
    j->failures++;
}

static int open_files(struct job *j, struct err *err)
{
    json_t *root = NULL;
    int rc = jobspec_read("spec.json", &root, err);

    if (rc == 0)
        rc = jobspec_parse(root, &j->spec, err);
    json_decref(root);
    if (rc < 0) {
        err_prefix(err, "spec.json");
        return rc;
    }
    j->nranks = (int)j->spec->run_ranks;
    rc = spawn_env(j->spec->run_env, &j->env, err);
    if (rc == 0)
        rc = spawn_open_program(j->options.worker, &j->worker_fd, err);
    if (rc == 0)
        rc = tiers_open("tiers", &j->tiers, err);
    if (rc == 0)
        rc = spool_open(".", SPOOL_SEGMENT_BYTES, j->options.last_seq, &j->spool, err);
    return rc;
}

static int open_link(struct job *j, struct err *err)
{
    struct link_config config = { .loop = j->loop,
                                  .path = j->options.socket,
                                  .spool = j->spool,
                                  .hello = j->hello,
                                  .welcome = on_welcome,
                                  .control = on_control,
                                  .acked = on_acked,
                                  .trouble = on_trouble,
                                  .arg = j };
    struct line l;
    int rc;

    line_begin(&l, j->hello, sizeof j->hello, "hello");
    line_int(&l, "protocol", SUP_PROTOCOL);
    line_int(&l, "job", j->options.job);
    line_int(&l, "attempt", j->attempt);
    line_str(&l, "nonce", j->options.nonce);
    line_int(&l, "pid", getpid());
    rc = line_done(&l, err);
    return rc < 0 ? rc : link_open(&config, &j->link, err);
}

static void on_tick(uv_timer_t *timer)
{
    job_tick(timer->data);
}

static void on_sigchld(uv_signal_t *handle, int number)
{
    struct job *j = handle->data;

    (void)number;
    if (j->ranks)
        ranks_reap(j->ranks);
}

static void on_sigterm(uv_signal_t *handle, int number)
{
    (void)number;
    job_leave(handle->data);
}

static void open_handles(struct job *j)
{
    uv_timer_t *timers[] = { &j->state_timer, &j->command_timer, &j->tick };
    uv_signal_t *signals[] = { &j->sigchld, &j->sigterm, &j->sigint };

    for (int i = 0; i < 3; i++) {
        uv_timer_init(j->loop, timers[i]);
        uv_signal_init(j->loop, signals[i]);
        timers[i]->data = signals[i]->data = j;
    }
    uv_timer_start(&j->tick, on_tick, 1000, 1000);
    uv_signal_start(&j->sigchld, on_sigchld, SIGCHLD);
    uv_signal_start(&j->sigterm, on_sigterm, SIGTERM);
    uv_signal_start(&j->sigint, on_sigterm, SIGINT);
    j->handles = 6;
}

static void begin(struct job *j, int lost)
{
    struct outcome o = { .outcome = "failed", .class = "fault", .reason = "detd-job was lost", .retry = true };

    if (j->end_seq) {
        wait_for_ack(j);
        return;
    }
    if (spool_lost(j->spool))
        job_event(j, -1, "error", "spool_damaged", "a spool file was damaged; reports that detd had not committed are lost");
    if (!lost) {
        start_attempt(j);
        return;
    }
    close_lost_attempt(j, lost);
    if (j->failures <= j->spec->run_restarts) {
        start_attempt(j);
        return;
    }
    j->failures--; /* after_failure() counts it */
    after_failure(j, &o);
}

int job_open(uv_loop_t *loop, const struct job_options *options, struct job **ret, struct err *err)
{
    struct job *j = calloc(1, sizeof *j);
    int lost = 0, rc;

    if (!j)
        return err_set(err, -ENOMEM, "out of memory");
    j->options = *options;
    j->loop = loop;
    j->worker_fd = -1;
    j->attempt = options->attempt;
    rc = open_files(j, err);
    if (rc == 0)
        rc = read_history(j, &lost, err);
    if (rc < 0) {
        job_close(j, NULL);
        return rc;
    }
    open_handles(j);
    rc = open_link(j, err);
    if (rc < 0) {
        job_close(j, NULL);
        return rc;
    }
    begin(j, lost);
    *ret = j;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    ((struct job *)handle->data)->handles--;
}

/* Ranks that still live are killed: this happens after an error only. */
static void close_handles(struct job *j)
{
    uv_handle_t *all[] = { (uv_handle_t *)&j->state_timer, (uv_handle_t *)&j->command_timer, (uv_handle_t *)&j->tick,
                           (uv_handle_t *)&j->sigchld,     (uv_handle_t *)&j->sigterm,       (uv_handle_t *)&j->sigint };

    for (int i = 0; i < 6; i++)
        uv_close(all[i], on_closed);
    link_close(j->link);
    if (j->ranks)
        ranks_kill(j->ranks, SIGKILL);
    ranks_free(j->ranks);
    uv_run(j->loop, UV_RUN_DEFAULT);
}

int job_close(struct job *j, struct err *err)
{
    int rc = j->fatal.code;

    if (j->handles)
        close_handles(j);
    if (rc && err)
        *err = j->fatal;
    watch_free(j->watch);
    tiers_close(j->tiers);
    spool_close(j->spool);
    spawn_free_env(j->env);
    jobspec_free(j->spec);
    if (j->worker_fd >= 0)
        close(j->worker_fd);
    free(j);
    return rc;
}
