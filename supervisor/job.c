#include "supervisor/job.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "proto/err.h"
#include "supervisor/actions.h"
#include "supervisor/given.h"
#include "supervisor/program/rows.h"
#include "supervisor/history.h"
#include "supervisor/ranks/left.h"
#include "supervisor/link.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/welcome.h"

enum { LAST_WORD_MS = 50000 /* less than detd gives a supervisor that has to leave */ };

/* ---- detd ---- */

static const char *on_hello(void *arg)
{
    struct job *j = arg;
    struct err err;

    if (welcome_hello(&j->options, j->going.attempt, j->records.spool, j->hello, sizeof j->hello, &err) < 0)
        actions_fatal(j, &err);
    return j->hello;
}

static void on_control(void *arg, const json_t *msg)
{
    orders_take(&((struct job *)arg)->orders, msg);
}

static int on_welcome(void *arg, const json_t *msg, struct err *err)
{
    struct job *j = arg;
    json_t *word;
    size_t i;
    int rc = welcome_take(j->records.spool, msg, err);

    if (rc < 0)
        return rc;
    status_forget(&j->status);
    json_array_foreach (json_object_get(msg, "control"), i, word) {
        on_control(j, word);
    }
    return 0;
}

static void on_trouble(void *arg, const char *text)
{
    (void)arg;
    job_log("%s", text);
}

static int open_link(struct job *j, struct err *err)
{
    struct link_config config = { .loop = j->loop,
                                  .path = j->options.socket,
                                  .spool = j->records.spool,
                                  .hello = on_hello,
                                  .welcome = on_welcome,
                                  .control = on_control,
                                  .acked = actions_acked,
                                  .trouble = on_trouble,
                                  .arg = j };

    return link_open(&config, &j->records.link, err);
}

/* ---- opening ---- */

static void on_sigchld(uv_signal_t *handle, int number)
{
    struct job *j = handle->data;

    (void)number;
    if (j->attempt.ranks)
        ranks_reap(j->attempt.ranks);
}

static void on_sigterm(uv_signal_t *handle, int number)
{
    (void)number;
    orders_leave(&((struct job *)handle->data)->orders);
}

/* Reading the spool may take a while. A signal to stop that comes meanwhile is taken after that, and the job ends in
 * order. */
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
    uv_timer_t *timers[] = { &j->timer, &j->tick, &j->orders.deadline };
    uv_signal_t *signals[] = { &j->sigchld, &j->sigterm, &j->sigint };

    for (int i = 0; i < 3; i++) {
        uv_timer_init(j->loop, timers[i]);
        uv_signal_init(j->loop, signals[i]);
        timers[i]->data = signals[i]->data = j;
    }
    j->orders.deadline.data = &j->orders;
    uv_timer_start(&j->tick, actions_tick, 1000, 1000);
    uv_signal_start(&j->sigchld, on_sigchld, SIGCHLD);
    uv_signal_start(&j->sigterm, on_sigterm, SIGTERM);
    uv_signal_start(&j->sigint, on_sigterm, SIGINT);
    mask_stops(SIG_UNBLOCK);
    j->opened = true;
}

static struct job *new_job(uv_loop_t *loop, const struct job_options *options)
{
    struct job *j = calloc(1, sizeof *j);

    if (!j)
        return NULL;
    j->options = *options;
    j->loop = loop;
    j->logs.max_bytes = options->log_max;
    j->going.attempt = options->attempt;
    j->needs = (struct needs)NEEDS_NONE;
    j->records = (struct records){ .going = &j->going, .fatal = actions_fatal, .arg = j };
    j->orders = (struct orders){ .going = &j->going, .attempt = &j->attempt, .records = &j->records, .fact = actions_fact, .arg = j };
    j->publish = (struct publish){
        .loop = loop, .job_dir = options->job_dir, .going = &j->going, .attempt = &j->attempt, .needs = &j->needs, .records = &j->records
    };
    j->speech =
        (struct speech){ .going = &j->going, .attempt = &j->attempt, .needs = &j->needs, .records = &j->records, .publish = &j->publish };
    j->orders.speech = &j->speech;
    j->messages = (struct messages){ .loop = loop,
                                     .going = &j->going,
                                     .attempt = &j->attempt,
                                     .needs = &j->needs,
                                     .records = &j->records,
                                     .orders = &j->orders,
                                     .fact = actions_fact,
                                     .arg = j };
    return j;
}

int job_open(uv_loop_t *loop, const struct job_options *options, struct job **ret, struct err *err)
{
    struct job *j = new_job(loop, options);
    int rc;

    if (!j)
        return err_set(err, -ENOMEM, "out of memory");
    rc = history_open(options, &j->records.spool, err);
    if (rc == 0)
        rc = history_read(j->records.spool, options->last_seq, &j->going, err);
    if (rc == 0) {
        open_handles(j);
        rc = open_link(j, err);
    }
    if (rc < 0) {
        job_close(j, NULL);
        return rc;
    }
    actions_begin(j);
    *ret = j;
    return 0;
}

/* Ranks live here only after an error: they are killed. An answer to a rank that becomes ready meanwhile is dropped. */
static void close_handles(struct job *j)
{
    uv_handle_t *all[] = { (uv_handle_t *)&j->timer,   (uv_handle_t *)&j->tick,    (uv_handle_t *)&j->orders.deadline,
                           (uv_handle_t *)&j->sigchld, (uv_handle_t *)&j->sigterm, (uv_handle_t *)&j->sigint };

    for (int i = 0; i < 6; i++)
        uv_close(all[i], NULL);
    link_close(j->records.link);
    if (j->attempt.ranks)
        ranks_kill(j->attempt.ranks, SIGKILL);
    attempt_close(&j->attempt);
    if (j->terminal)
        terminal_close(j->terminal);
    uv_run(j->loop, UV_RUN_DEFAULT);
}

bool job_has_recorded(const struct job *j)
{
    return spool_last(j->records.spool) > 0;
}

int job_close(struct job *j, struct err *err)
{
    const struct going *g = &j->going;
    struct spool *spool = j->records.spool;
    int rc = j->fatal.code;
    bool spent = rc == 0 && j->options.own_folder && g->final && g->end_seq > 0 && spool_acked(spool) >= g->end_seq;

    if (j->opened)
        close_handles(j);
    if (rc && err)
        *err = j->fatal;
    needs_drop(&j->needs);
    records_drop_late(&j->records);
    messages_close(&j->messages);
    rows_free(j->speech.rows);
    publish_close(&j->publish);
    spool_close(spool);
    if (spent)
        given_drop_spool();
    gpus_unlock(&j->gpus);
    if (j->options.own_folder) /* detd-launch kills what stays behind */
        left_await_spared(LAST_WORD_MS);
    free(j);
    return rc;
}
