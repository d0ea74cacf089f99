/* supervisor/open.c - a job from its files: spec, spool, what happened before; the link to detd; and the way out. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/report.h"
#include "supervisor/job_impl.h"
#include "supervisor/spawn.h"

enum { MAX_NONCE = 128 };

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

/* What the ranks need. An error here is the job's outcome: trying again would find the same. */
static int read_job(struct job *j, struct err *err)
{
    int rc = read_spec(j, err);

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

void job_write_hello(struct job *j)
{
    struct err err;
    struct line l;

    line_begin(&l, j->hello, sizeof j->hello, "hello");
    line_int(&l, "protocol", SUP_PROTOCOL);
    line_int(&l, "job", j->options.job);
    line_int(&l, "attempt", j->attempt);
    line_text(&l, "nonce", j->options.nonce, MAX_NONCE);
    line_int(&l, "pid", getpid());
    if (line_done(&l, &err) < 0)
        job_fatal(j, &err);
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

    job_write_hello(j);
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

int job_open(uv_loop_t *loop, const struct job_options *options, struct job **ret, struct err *err)
{
    struct job *j = calloc(1, sizeof *j);
    struct err refused = { 0 };
    int lost = 0, rc;

    if (!j)
        return err_set(err, -ENOMEM, "out of memory");
    j->options = *options;
    j->loop = loop;
    j->worker_fd = -1;
    j->plugin_fd = -1;
    j->attempt = options->attempt;
    rc = spool_open(".", SPOOL_SEGMENT_BYTES, options->last_seq, &j->spool, err);
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
    read_job(j, &refused);
    job_begin(j, lost, &refused);
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
    job_unlock_gpus(j);
    if (j->worker_fd >= 0)
        close(j->worker_fd);
    if (j->plugin_fd >= 0)
        close(j->plugin_fd);
    free(j);
    return rc;
}
