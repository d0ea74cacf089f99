/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/open.c - a job from its files: spec, spool, what happened before; the link to detd; and the way out. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/report.h"
#include "supervisor/given.h"
#include "supervisor/job_impl.h"
#include "supervisor/left.h"
#include "supervisor/spawn.h"

enum { MAX_NONCE = 128, LAST_WORD_MS = 50000 }; /* less than detd gives who has to leave */

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
    if ((uint64_t)last < spool_acked(j->spool))
        job_log("detd had %llu reports and now has %lld: its database is a copy from before", (unsigned long long)spool_acked(j->spool),
                (long long)last);
    spool_unack(j->spool, (uint64_t)last);
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

    job_write_late(j);
    if (j->state == RUN_ENDED && !j->late && spool_acked(j->spool) >= j->end_seq)
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

/* A record that the history is made of, parsed; NULL for the many others. Ours begin with their type; those of ranks are as they wrote them. */
static json_t *parse_milestone(const char *text, const char **ret_type)
{
    json_t *rec = NULL;

    if (strncmp(text, "{\"type\":\"attempt\"", 17) == 0 || strncmp(text, "{\"type\":\"end", 12) == 0 || strstr(text, "\"checkpoint\""))
        rec = json_loads(text, 0, NULL);
    *ret_type = json_string_value(json_object_get(rec, "type"));
    if (*ret_type)
        return rec;
    json_decref(rec);
    return NULL;
}

static void take_milestone(struct job *j, const json_t *rec, const char *type, uint64_t seq, int *ret_open)
{
    const char *outcome = json_string_value(json_object_get(rec, "outcome")), *class = json_string_value(json_object_get(rec, "class"));
    bool attempt = strcmp(type, "attempt") == 0, ended = strcmp(type, "ended") == 0, end = strcmp(type, "end") == 0;
    bool checkpoint = strcmp(type, "checkpoint") == 0;
    int n = (int)json_integer_value(json_object_get(rec, "attempt"));

    if ((attempt || ended || end) && n >= j->attempt)
        j->attempt = n + 1;
    if (attempt)
        *ret_open = n;
    if (attempt)
        job_saved(j, json_integer_value(json_object_get(rec, "resume_step")));
    if (ended || end)
        *ret_open = 0;
    if (ended && outcome && strcmp(outcome, "failed") == 0)
        j->failures++;
    if (checkpoint)
        job_saved(j, json_integer_value(json_object_get(rec, "step")));
    if (end && class && strcmp(class, "missing") == 0) /* it looks for the file once, and gives its slots back again */
        j->missing = JOB_MISSING_TRIES - 1;
    if (end)
        j->failures = 0;
    if (checkpoint && seq > j->options.last_seq)
        j->unheard = true;
    if (end && seq > j->options.last_seq) {
        j->end_seq = seq;
        j->final = outcome && strcmp(outcome, "paused") != 0;
    }
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
        const char *type;
        json_t *rec = parse_milestone(text, &type);

        j->end_seq = 0; /* counts as the last record only */
        if (rec)
            take_milestone(j, rec, type, seq, ret_open);
        json_decref(rec);
        rc = 0;
    }
    return rc;
}

static int read_spec(struct job *j, struct err *err)
{
    json_t *root = NULL;
    int rc = jobspec_read("spec.json", &root, err);

    if (rc == 0)
        rc = jobspec_parse_stored(root, &j->spec, err);
    json_decref(root);
    if (rc < 0)
        err_prefix(err, "spec.json");
    return rc;
}

static void forget_job(struct job *j)
{
    int *fds[] = { &j->worker_fd, &j->plugin_fd };

    tiers_close(j->tiers);
    spawn_free_env(j->env);
    jobspec_free(j->spec);
    j->tiers = NULL;
    j->env = NULL;
    j->spec = NULL;
    for (int i = 0; i < 2; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

int job_read(struct job *j, struct err *err)
{
    int rc;

    forget_job(j);
    rc = read_spec(j, err);
    if (rc == 0)
        rc = spawn_env(j->spec->run_env, &j->env, err);
    if (rc == 0)
        rc = spawn_open_program(j->options.worker, &j->worker_fd, err);
    if (rc == 0)
        rc = spawn_open_plugin(j->options.worker, &j->plugin_fd, err);
    if (rc == 0)
        rc = tiers_open("tiers", &j->tiers, err);
    if (rc == 0)
        j->nranks = (int)j->spec->run_ranks;
    return rc;
}

static const char *hello(void *arg)
{
    struct job *j = arg;
    struct err err;
    struct line l;

    line_begin(&l, j->hello, sizeof j->hello, "hello");
    line_int(&l, "protocol", SUP_PROTOCOL);
    line_int(&l, "job", j->options.job);
    line_int(&l, "attempt", j->attempt);
    line_text(&l, "nonce", j->options.nonce, MAX_NONCE);
    line_int(&l, "pid", getpid());
    line_bool(&l, "beats", true);
    line_int(&l, "first", (int64_t)spool_first(j->spool));
    if (line_done(&l, &err) < 0)
        job_fatal(j, &err);
    return j->hello;
}

static int open_link(struct job *j, struct err *err)
{
    struct link_config config = { .loop = j->loop,
                                  .path = j->options.socket,
                                  .spool = j->spool,
                                  .hello = hello,
                                  .welcome = on_welcome,
                                  .control = on_control,
                                  .acked = on_acked,
                                  .trouble = on_trouble,
                                  .arg = j };

    return link_open(&config, &j->link, err);
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

/* Spool and history may take a while: who is told to stop meanwhile hears it when they are read, and leaves in order. */
static void mask_stops(int how)
{
    sigset_t stops;

    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigprocmask(how, &stops, NULL);
}

void job_hold_signals(void)
{
    mask_stops(SIG_BLOCK);
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
    mask_stops(SIG_UNBLOCK);
    j->handles = 6;
}

/* What the job of another database left where this one is now: its reports are kept, but they are none of this job, nor are its tiers. */
static int set_aside(const char *store_id, struct err *err)
{
    static const char *const names[] = { "spool.0", "spool.1", "tiers" };
    char to[SPOOL_STORE_ID + 16];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(to, sizeof to, "%s.%s", names[i], store_id);
        if (rename(names[i], to) < 0 && errno != ENOENT)
            return err_sys(err, "rename '%s' to '%s'", names[i], to);
    }
    job_log("the spool was of another database (store %s): kept as spool.0.%s and spool.1.%s", store_id, store_id, store_id);
    return 0;
}

static int open_spool(struct job *j, struct err *err)
{
    const char *ours = j->options.store_id, *known;
    int rc = spool_open(".", SPOOL_SEGMENT_BYTES, j->options.last_seq, &j->spool, err);

    if (rc < 0 || !ours)
        return rc;
    known = spool_store_id(j->spool);
    if (known[0] && strcmp(known, ours) != 0) {
        rc = set_aside(known, err);
        spool_close(j->spool);
        j->spool = NULL;
        if (rc == 0)
            rc = spool_open(".", SPOOL_SEGMENT_BYTES, j->options.last_seq, &j->spool, err);
        if (rc < 0)
            return rc;
    }
    return spool_store_id(j->spool)[0] ? 0 : spool_set_store_id(j->spool, ours, err);
}

int job_open(uv_loop_t *loop, const struct job_options *options, struct job **ret, struct err *err)
{
    struct job *j = calloc(1, sizeof *j);
    int lost = 0, rc;

    if (!j)
        return err_set(err, -ENOMEM, "out of memory");
    j->options = *options;
    j->logs.max_bytes = options->log_max;
    j->loop = loop;
    j->worker_fd = -1;
    j->plugin_fd = -1;
    j->attempt = options->attempt;
    rc = open_spool(j, err);
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
    job_begin(j, lost);
    *ret = j;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    ((struct job *)handle->data)->handles--;
}

/* Ranks that still live are killed: this happens after an error only. A sync for them that ends meanwhile finds nobody to tell. */
static void close_handles(struct job *j)
{
    struct ranks *ranks = j->ranks;
    uv_handle_t *all[] = { (uv_handle_t *)&j->state_timer, (uv_handle_t *)&j->command_timer, (uv_handle_t *)&j->tick,
                           (uv_handle_t *)&j->sigchld,     (uv_handle_t *)&j->sigterm,       (uv_handle_t *)&j->sigint };

    for (int i = 0; i < 6; i++)
        uv_close(all[i], on_closed);
    link_close(j->link);
    if (ranks)
        ranks_kill(ranks, SIGKILL);
    j->ranks = NULL;
    ranks_free(ranks);
    uv_run(j->loop, UV_RUN_DEFAULT);
}

int job_close(struct job *j, struct err *err)
{
    int rc = j->fatal.code;
    bool spent = rc == 0 && j->options.own_folder && j->final && j->end_seq > 0 && spool_acked(j->spool) >= j->end_seq;

    if (j->handles)
        close_handles(j);
    if (rc && err)
        *err = j->fatal;
    watch_free(j->watch);
    forget_job(j);
    job_drop_late(j);
    free(j->durable);
    spool_close(j->spool);
    if (spent)
        given_drop_spool();
    job_unlock_gpus(j);
    if (j->options.own_folder) /* detd-launch kills what stays behind */
        left_await_spared(LAST_WORD_MS);
    free(j);
    return rc;
}
