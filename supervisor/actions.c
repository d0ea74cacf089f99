#include "supervisor/actions.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/err.h"
#include "proto/progress.h"
#include "supervisor/ranks/left.h"
#include "supervisor/link.h"
#include "supervisor/ranks/log.h"
#include "supervisor/on_end.h"
#include "supervisor/ranks/errorfile.h"
#include "supervisor/ranks/program.h"
#include "supervisor/spool/published.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/ranks/watch.h"

enum {
    ROOM_BYTES = 1 << 20, /* kept free in the spool for records of our own when ranks fill it */
    PORT_MS = 60000,      /* a program that ends within, without a report, may have lost its port to another process */
    SIGTERM_LOOKS = 20    /* of GOING_LEFT_MS: for a SIGTERM that comes to all processes of the node */
};

/* ---- the table of states ---- */

static void take(struct job *j, enum going_fact fact, const char *text);

static bool spool_ready(void *arg)
{
    struct job *j = arg;

    return j->going.phase != GOING_OVER && !j->records.late && spool_has_room(j->records.spool, ROOM_BYTES);
}

static void on_timer(uv_timer_t *timer)
{
    struct job *j = timer->data;
    bool held = j->going.phase == GOING_WAITING ? j->records.late != NULL : j->going.phase == GOING_GREETING && !spool_ready(j);

    take(j, held ? GOING_FACT_HELD : GOING_FACT_DUE, "");
}

void actions_fact(void *arg, enum going_fact fact, const char *text)
{
    take(arg, fact, text);
}

void actions_fatal(void *arg, const struct err *err)
{
    struct job *j = arg;

    if (!j->fatal.code)
        j->fatal = *err;
    take(j, GOING_FACT_FATAL, "");
}

/* The outcome of the job is known. */
static void conclude(struct job *j, const char *outcome, const char *reason, const char *class)
{
    snprintf(j->end.outcome, sizeof j->end.outcome, "%s", outcome);
    snprintf(j->end.reason, sizeof j->end.reason, "%s", reason);
    snprintf(j->end.class, sizeof j->end.class, "%s", class);
    take(j, GOING_FACT_CONCLUDED, "");
}

/* ---- records of attempts ---- */

static double seconds(const struct job *j)
{
    return (double)(uv_now(j->loop) - j->began_ms) / 1000;
}

static struct ranks_usage usage(const struct job *j)
{
    struct ranks_usage now = { 0 };

    if (j->attempt.ranks)
        ranks_usage(j->attempt.ranks, &now);
    now.cpu_seconds += j->usage.cpu_seconds;
    now.max_rss = now.max_rss > j->usage.max_rss ? now.max_rss : j->usage.max_rss;
    return now;
}

static void append_outcome(struct job *j, const char *type, const char *outcome, const char *reason, const char *class, uint64_t *ret_seq)
{
    struct line *l = records_begin(&j->records, type);
    struct ranks_usage u = usage(j);

    line_int(l, "attempt", j->going.attempt);
    line_str(l, "outcome", outcome);
    line_str(l, "reason", reason);
    line_str(l, "class", class);
    line_real(l, "time", job_time());
    line_real(l, "cpu_seconds", u.cpu_seconds);
    line_real(l, "seconds", seconds(j));
    line_int(l, "max_rss", u.max_rss);
    records_add(&j->records, ret_seq);
}

static void append_ended(struct job *j, const char *outcome, const char *reason, const char *class)
{
    append_outcome(j, "ended", outcome, reason, class, NULL);
    job_log("attempt %d %s: %s", j->going.attempt, outcome, reason);
}

static void event(struct job *j, int rank, const char *level, const char *kind, const char *text)
{
    records_event(&j->records, rank, level, kind, text, NULL);
}

static void tell_command(struct job *j, const char *about, const char *outcome, const char *reason)
{
    struct on_end e = {
        .job = j->options.job, .spec = j->needs.spec, .env = j->needs.env, .attempt = j->going.attempt, .step = j->going.saved
    };

    on_end_tell(&e, about, outcome, reason);
}

/* ---- the end ---- */

static void quit(struct job *j)
{
    uv_stop(j->loop);
}

static void tell_unacked(struct job *j)
{
    job_log("detd did not ack the outcome; it finds it in the spool");
    quit(j);
}

static void await_ack(struct job *j)
{
    if (spool_acked(j->records.spool) >= j->going.end_seq)
        take(j, GOING_FACT_ACKED, "");
    else if (j->going.wishes & GOING_WISH_LEAVE && !link_is_up(j->records.link)) /* a node that shuts down does not wait */
        take(j, GOING_FACT_LEAVE, "");
}

static void confirm(struct job *j)
{
    struct err err = { 0 };

    if (spool_sync(j->records.spool, &err) < 0)
        actions_fatal(j, &err);
    else if (strcmp(j->end.outcome, "paused") != 0)
        tell_command(j, "end", j->end.outcome, j->end.reason);
    await_ack(j);
}

static void end(struct job *j)
{
    const struct going_end *e = &j->end;

    append_outcome(j, "end", e->outcome, e->reason, e->class, &j->going.end_seq);
    j->going.final = strcmp(e->outcome, "paused") != 0;
    if (j->going.phase == GOING_OVER)
        return;
    job_log("job %s%s%s", e->outcome, e->reason[0] ? ": " : "", e->reason);
    if (!j->records.late)
        take(j, GOING_FACT_WRITTEN, "");
}

static void end_stopped(struct job *j)
{
    going_stopped(&j->going, "", &j->end);
    end(j);
}

static void die(struct job *j)
{
    if (j->attempt.ranks)
        ranks_kill(j->attempt.ranks, SIGKILL);
    quit(j);
}

/* ---- killing ---- */

static void kill_ranks(struct job *j)
{
    attempt_kill(&j->attempt);
}

static void term_ranks(struct job *j)
{
    ranks_kill(j->attempt.ranks, j->needs.program ? j->needs.program->stop_signal : SIGTERM);
}

static void tell_stuck(struct job *j)
{
    int rank = attempt_stuck(&j->attempt, j->trouble, sizeof j->trouble);

    if (rank >= 0 && j->going.looks % GOING_STAYS_LOOKS == 1)
        event(j, rank, "warning", "stuck", j->trouble);
    attempt_kill(&j->attempt);
}

static void tell_unheard(struct job *j)
{
    int rank = attempt_unheard(&j->attempt, GOING_HELLO_MS / 1000);

    event(j, rank, "error", "hang", j->attempt.cause);
    tell_command(j, "hang", "", j->attempt.cause);
    attempt_kill(&j->attempt);
}

/* ---- what an attempt amounts to ---- */

/* A rank that died between publishing a checkpoint and saying so has got on all the same. Its next attempt says so. */
static void look_at_published(struct job *j)
{
    int64_t before = j->going.saved, of_program = saved_newest();

    going_saved(&j->going, of_program >= 0 ? of_program : published_newest());
    j->going.unheard = j->going.unheard || (j->going.saved > before && j->going.saved > j->options.saved);
}

static void judge(struct job *j, const struct outcome *o)
{
    bool failed = strcmp(o->outcome, "failed") == 0, granted = going_grants(&j->going, o);
    enum going_fact fact;

    if (granted || (failed && (!o->missing || j->attempt.started))) /* else each look at a missing file would be told */
        append_ended(j, granted ? "stopped" : "failed", o->reason, granted ? "" : o->class);
    if (failed && !granted)
        look_at_published(j);
    fact = going_judge(&j->going, o, &j->end);
    if (fact == GOING_FACT_AGAIN && !o->missing && !j->going.hung)
        tell_command(j, "failure", "failed", o->reason);
    take(j, fact, "");
}

static void send_status(struct job *j)
{
    const char *trouble = j->trouble[0] ? j->trouble : j->records.no_room[0] ? j->records.no_room : j->attempt.waits;
    struct status_view v = { .attempt = &j->attempt,
                             .number = j->going.attempt,
                             .now_s = (double)uv_now(j->loop) / 1000,
                             .seconds = seconds(j),
                             .usage = usage(j),
                             .speech = j->needs.program ? &j->speech : NULL,
                             .trouble = trouble };

    status_send(&j->status, &v, j->records.link);
}

/* Another process got the port before the ranks could listen on it. */
static bool lost_port(const struct job *j, const struct outcome *o)
{
    const struct program *p = j->needs.program;

    return p && strcmp(o->outcome, "failed") == 0 && !j->speech.reported && uv_now(j->loop) - j->attempt.began_ms < PORT_MS &&
           p->port.number > 0 && !port_is_free(p->port.number);
}

static void tell_lost_port(struct job *j)
{
    char text[120];

    snprintf(text, sizeof text, "another process listens on port %d, which was the MASTER_PORT of attempt %d",
             j->needs.program->port.number, j->going.attempt);
    event(j, -1, "warning", "port", text);
}

static void drop_terminal(struct job *j);

static void bound_logs(struct job *j)
{
    struct err err;

    if (logs_bound(&j->logs, j->attempt.nranks, &err) < 0)
        job_log("%s", err.msg);
}

static void attempt_over(struct job *j)
{
    struct outcome o = { 0 };

    j->attempt.stopped = j->attempt.stopped || (j->needs.program && orders_is_answered(&j->orders)) ||
                         (j->needs.program && j->going.wishes & (GOING_WISH_LEAVE | GOING_WISH_CANCEL));
    speech_end(&j->speech);
    if (j->needs.program)
        publish_attempt_over(&j->publish);
    attempt_outcome(&j->attempt, &o);
    o.elsewhere = lost_port(j, &o);
    if (o.elsewhere)
        tell_lost_port(j);
    bound_logs(j);
    send_status(j); /* the last of these ranks */
    j->usage = usage(j);
    attempt_close(&j->attempt);
    drop_terminal(j);
    orders_attempt_over(&j->orders);
    judge(j, &o);
}

/* A node that shuts down sends SIGTERM to all processes at once: the ranks of a program may end before this process
 * hears of it. */
static bool awaits_sigterm(const struct job *j)
{
    if (!j->needs.program || j->going.wishes || j->going.looks >= SIGTERM_LOOKS)
        return false;
    for (int i = 0; i < j->attempt.nranks; i++)
        if (!j->attempt.rank[i].out.killed && j->attempt.rank[i].out.status != 0)
            return true;
    return false;
}

/* Processes that ranks started hold the job's lock and memory of its GPUs: the attempt is over when they are gone. */
static void clean(struct job *j)
{
    char text[128] = "", told[200];
    int left;

    if (j->going.looks == 0)
        left_forget();
    left = left_kill(text, sizeof text);
    j->trouble[0] = '\0';
    if (j->needs.program && left_killed() > 0 && !j->attempt.left) {
        snprintf(told, sizeof told, "the ranks have ended and left %s, which was killed%s", text,
                 left_killed() > 1 ? ", as others were" : "");
        event(j, -1, "info", "left", told);
        j->attempt.left = true;
    }
    if (left > 0 ? j->going.looks < GOING_LEFT_LOOKS : j->publish.waiting > 0 || awaits_sigterm(j)) {
        take(j, GOING_FACT_REMAIN, "");
        return;
    }
    if (left > 0) {
        snprintf(told, sizeof told, "%s of the job was killed and stays", text);
        event(j, -1, "warning", "left", told);
    }
    attempt_over(j);
}

/* ---- ranks ---- */

static void on_line(void *arg, int rank, const char *text, size_t len)
{
    struct job *j = arg;

    if (j->needs.program)
        speech_take(&j->speech, rank, text, len);
    else
        messages_take(&j->messages, rank, text, len);
}

static void on_broken(void *arg, int rank, const char *why)
{
    char text[OUTCOME_TEXT];

    struct job *j = arg;

    if (j->needs.program) {
        speech_left_out(&j->speech, rank, why);
        return;
    }
    snprintf(text, sizeof text, "rank %d: malformed report: %s", rank, why);
    take(j, GOING_FACT_BROKEN, text);
}

/* Mostly the last moment of a process; a rank that lives on cannot be heard any more. */
static void on_rank_closed(void *arg, int rank)
{
    struct job *j = arg;

    j->attempt.rank[rank].closed = true;
    if (!j->attempt.rank[rank].out.ended && !j->needs.program) /* a program may close it */
        take(j, GOING_FACT_FAILED, "");
}

static void on_gone(void *arg, int rank, int status)
{
    struct job *j = arg;
    const struct attempt_rank *r = &j->attempt.rank[rank];
    char how[100];

    attempt_gone(&j->attempt, rank, status);
    outcome_describe(status, how, sizeof how);
    if (j->needs.program)
        speech_gone(&j->speech, rank, status);
    if (!r->out.ended && !r->out.killed && (status != 0 || !j->needs.program))
        job_log("attempt %d: rank %d %s", j->going.attempt, rank, how);
    if (!r->out.ended && (status != 0 || !j->needs.program)) /* of a program, status 0 stops no other rank */
        take(j, GOING_FACT_FAILED, "");
    if (attempt_all_gone(&j->attempt))
        take(j, GOING_FACT_GONE, "");
}

/* ---- starting ---- */

/* A refusal of the system may pass, and is no failure of the job. */
static void tell_refused(struct job *j)
{
    job_log("cannot start yet: %s", j->said);
    if (strcmp(j->refusal, j->said) == 0)
        return;
    snprintf(j->refusal, sizeof j->refusal, "%s", j->said);
    event(j, -1, "warning", "waits", j->refusal);
}

/* An error in the spec ends the job: another look would find the same. A refusal of the system may pass; the spec may
 * be read then, and its run.time_limit counts. */
static void read_needs(struct job *j)
{
    struct err err = { 0 };
    int rc = needs_read(&j->needs, j->options.worker, j->options.job, &err);
    const struct jobspec *s = j->needs.spec;

    if (s) {
        j->attempt.nranks = (int)s->run_ranks;
        j->going.restarts = (int)s->run_restarts;
        j->going.fail_on_hang = strcmp(s->run_on_hang, "fail") == 0;
        j->going.limit_s = s->run_time_limit;
        j->orders.program = j->needs.program;
    }
    if (rc == 0)
        take(j, GOING_FACT_READ, "");
    else if (err_is_system(&err))
        take(j, GOING_FACT_REFUSED, err.msg);
    else
        conclude(j, "failed", err.msg, "user");
}

static void lock_gpus(struct job *j)
{
    struct err err = { 0 };
    int rc = gpus_lock(&j->gpus, &j->options, &err);

    if (rc == 0)
        take(j, going_ready(&j->going, &j->end), "");
    else if (rc == -EWOULDBLOCK) /* no fault of the job: it is queued again, and the next grant may be of other GPUs */
        conclude(j, "paused", err.msg, "");
    else if (err_is_system(&err))
        take(j, GOING_FACT_REFUSED, err.msg);
    else
        conclude(j, "failed", err.msg, "fault");
}

static void look_at_terminal(struct job *j)
{
    if (!j->terminal || !terminal_is_lost(j->terminal))
        return;
    event(j, -1, "warning", "terminal", "no detctl shell was connected for a minute: the job ends");
    orders_end(&j->orders);
}

static void drop_terminal(struct job *j)
{
    if (j->terminal)
        terminal_close(j->terminal);
    j->terminal = NULL;
}

/* What a program needs anew for each start. */
static int prepare_program(struct job *j, struct err *err)
{
    struct program *p = j->needs.program;
    int rc = program_find(p, j->needs.env, err);

    port_drop(&p->port);
    if (rc == 0)
        rc = publish_begin(&j->publish, err);
    if (rc == 0 && p->spec->program_terminal)
        rc = terminal_open(j->loop, &j->terminal, err);
    if (rc == 0)
        rc = errorfile_prepare(j->going.attempt, (int)p->spec->run_ranks, err);
    return rc < 0 ? rc : port_take((unsigned)(j->options.job * 101 + j->going.attempt * 13), &p->port, err);
}

static void start_ranks(struct job *j)
{
    struct attempt *a = &j->attempt;
    struct ranks_config config = { .loop = j->loop,
                                   .job_dir = j->options.job_dir,
                                   .nranks = a->nranks,
                                   .attempt = j->going.attempt,
                                   .worker_path = j->options.worker,
                                   .worker_fd = j->needs.worker_fd,
                                   .plugin_fd = j->needs.plugin_fd,
                                   .lock_fd = j->options.lock_fd,
                                   .program = j->needs.program,
                                   .run_env = j->needs.spec->run_env,
                                   .gpus = j->options.gpus,
                                   .line = on_line,
                                   .broken = on_broken,
                                   .closed = on_rank_closed,
                                   .gone = on_gone,
                                   .ready = spool_ready,
                                   .arg = j };
    struct outcome o = { .outcome = "failed", .class = "fault", .retry = true };
    struct err err = { 0 };
    int rc = j->needs.program ? prepare_program(j, &err) : 0;

    config.tty = j->terminal ? terminal_fd(j->terminal) : 0;
    status_begin(&j->status);
    orders_attempt_begins(&j->orders);
    if (rc == 0 && attempt_start(a, &config, &err) == 0) {
        j->refusal[0] = '\0';
        if (j->terminal)
            terminal_started(j->terminal);
        job_log("attempt %d: %d rank%s started", j->going.attempt, a->nranks, a->nranks == 1 ? "" : "s");
        take(j, GOING_FACT_STARTED, "");
        if (j->needs.program) /* it says hello when it likes */
            take(j, GOING_FACT_GREETED, "");
        return;
    }
    drop_terminal(j);
    if (err_is_shortage(&err)) {
        take(j, GOING_FACT_REFUSED, err.msg);
        return;
    }
    snprintf(o.reason, sizeof o.reason, "%s", err.msg);
    if (j->needs.program && err.code == ERR_INPUT) { /* another try would find the same */
        snprintf(o.class, sizeof o.class, "user");
        o.retry = false;
    }
    judge(j, &o);
}

static void go(struct job *j)
{
    if (j->needs.program)
        speech_begin(&j->speech);
    else
        messages_go(&j->messages);
    orders_send(&j->orders);
}

static void pass(struct job *j)
{
    j->going.term_ms = orders_term_ms(&j->orders);
    orders_pass(&j->orders);
}

static void (*const actions[])(struct job *j) = {
    [GOING_NOTHING] = NULL,
    [GOING_READ] = read_needs,
    [GOING_LOCK] = lock_gpus,
    [GOING_START] = start_ranks,
    [GOING_TELL_REFUSED] = tell_refused,
    [GOING_GO] = go,
    [GOING_PASS] = pass,
    [GOING_TERM] = term_ranks,
    [GOING_KILL] = kill_ranks,
    [GOING_TELL_UNHEARD] = tell_unheard,
    [GOING_TELL_STUCK] = tell_stuck,
    [GOING_CLEAN] = clean,
    [GOING_END] = end,
    [GOING_END_STOPPED] = end_stopped,
    [GOING_CONFIRM] = confirm,
    [GOING_AWAIT] = await_ack,
    [GOING_TELL_UNACKED] = tell_unacked,
    [GOING_QUIT] = quit,
    [GOING_DIE] = die,
};

/* A fact that stops the attempt says why: that is its cause. */
static void take(struct job *j, enum going_fact fact, const char *text)
{
    bool had = going_has_attempt(&j->going);
    enum going_action action = going_next(&j->going, fact);

    if (had && !going_has_attempt(&j->going))
        snprintf(j->attempt.cause, sizeof j->attempt.cause, "%s", text);
    if (j->going.wait_ms != GOING_KEEP)
        uv_timer_stop(&j->timer);
    if (j->going.wait_ms > 0)
        uv_timer_start(&j->timer, on_timer, (uint64_t)j->going.wait_ms, 0);
    j->said = text;
    if (actions[action])
        actions[action](j);
}

/* ---- once a second ---- */

static void hang(struct job *j, const struct watch_verdict *v)
{
    struct line *l = records_begin(&j->records, "event");

    job_log("%s", v->text);
    line_str(l, "level", "error");
    line_str(l, "kind", v->kind);
    line_str(l, "text", v->text);
    line_real(l, "time", job_time());
    line_int(l, "rank", v->rank);
    line_int(l, "attempt", j->going.attempt);
    line_str(l, "phase", progress_phase_name(v->phase));
    line_int(l, "step", (int64_t)(v->step & INT64_MAX));
    records_add(&j->records, NULL);
    tell_command(j, "hang", "", v->text);
    take(j, j->needs.program && speech_dump_stacks(&j->speech) ? GOING_FACT_TRACED : GOING_FACT_HUNG, v->text);
}

/* The lock's file was removed, so detd took the job for dead and started another detd-job: the job must not run twice.
 * While there is no other lock, this one goes on. */
static bool is_replaced(const struct job *j)
{
    struct stat held, now;

    return !j->options.own_folder && fstat(j->options.lock_fd, &held) == 0 && held.st_nlink == 0 && lstat("lock", &now) == 0;
}

static void write_late(struct job *j)
{
    if (j->going.phase == GOING_OVER || !records_write_late(&j->records))
        return;
    messages_answer_late(&j->messages);
    if (j->going.phase == GOING_ENDING)
        take(j, GOING_FACT_WRITTEN, "");
    else if (j->attempt.ranks)
        ranks_resume(j->attempt.ranks);
}

static bool looks_hung(struct job *j, struct watch_verdict *ret)
{
    double now_s = (double)uv_now(j->loop) / 1000;

    if (!j->needs.program)
        return attempt_look(&j->attempt, now_s, j->messages.durable, ret);
    attempt_tell_idle(&j->attempt, j->trouble, sizeof j->trouble);
    return speech_hangs(&j->speech, now_s, ret);
}

void actions_tick(uv_timer_t *timer)
{
    struct job *j = timer->data;
    struct watch_verdict v;
    struct err err;

    if (is_replaced(j)) {
        err_set(&err, ERR_STATE, "the job's lock was removed, and another detd-job has a new one");
        actions_fatal(j, &err);
        return;
    }
    bound_logs(j);
    write_late(j);
    if (j->going.phase < GOING_ENDING) {
        orders_tick(&j->orders);
        publish_tick(&j->publish);
        look_at_terminal(j);
        orders_look_at_limit(&j->orders, (double)j->options.ran_s + seconds(j));
        if (going_has_attempt(&j->going) && looks_hung(j, &v))
            hang(j, &v);
    }
    if ((j->going.phase < GOING_ENDING || j->records.late) && link_is_up(j->records.link))
        send_status(j);
}

void actions_acked(void *arg)
{
    struct job *j = arg;

    write_late(j);
    if (j->going.phase == GOING_ENDED && spool_acked(j->records.spool) >= j->going.end_seq)
        take(j, GOING_FACT_ACKED, "");
    else if (j->attempt.ranks)
        ranks_resume(j->attempt.ranks);
}

/* ---- the beginning ---- */

/* An attempt without an end: the detd-job before this one was lost, and its ranks with it. */
static void close_lost_attempt(struct job *j, int lost)
{
    int next = j->going.attempt;

    j->going.attempt = j->going.lost = lost;
    append_ended(j, "failed", "detd-job was lost", "fault");
    if (!going_is_drained(&j->going, j->options.drain))
        tell_command(j, "failure", "failed", "detd-job was lost");
    j->going.attempt = next;
    look_at_published(j);
    j->going.failures++;
}

void actions_begin(struct job *j)
{
    const struct job_options *o = &j->options;
    struct going *g = &j->going;

    j->began_ms = uv_now(j->loop);
    if (g->end_seq) {
        take(j, GOING_FACT_RECORDED, "");
        return;
    }
    if (spool_lost(j->records.spool))
        event(j, -1, "error", "spool_damaged", "a spool file was damaged; reports that detd had not committed are lost");
    if (g->lost)
        close_lost_attempt(j, g->lost);
    else
        look_at_published(j);
    if (going_is_drained(g, o->drain)) {
        conclude(j, o->drain, o->reason, strcmp(o->drain, "failed") == 0 ? "fault" : "");
        return;
    }
    if (o->drain && !g->lost && g->attempt == o->attempt) { /* detd gives a drain no number of its own: this is the lost one's */
        g->attempt++;
        close_lost_attempt(j, o->attempt);
    }
    take(j, GOING_FACT_BEGUN, "");
}
