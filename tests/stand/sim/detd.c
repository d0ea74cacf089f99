/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/detd.c - the daemon: its real parts, tied together as in
 * daemon/daemon.c, and the requests of its clients. It is killed by forgetting it: no part of it runs any more, and its
 * uncommitted writes are lost. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/bounds.h"
#include "daemon/job/report.h"
#include "daemon/jobs/event.h"
#include "daemon/gpu/gpu.h"
#include "daemon/run/gpu_node.h"
#include "daemon/run/ingest.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/removal.h"
#include "daemon/run/run.h"
#include "daemon/run/shares.h"
#include "daemon/run/slots.h"
#include "daemon/run/spent.h"
#include "daemon/jobs/usage.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "tests/stand/sim/world.h"

/* OVERDUE_S: the time for a cancel, then that for leaving after an end, each with KILL_S for the kill. A start of detd
 * begins it anew: the moment of a cancel is not stored, and no user can restart detd. */
enum { LEAVE_S = 20, KILL_S = 30, OVERDUE_S = 2 * (LIFE_OBEY_S + KILL_S) };
#define SPEC "{\"run\":{\"threads\":1,\"deterministic\":\"rerun\"}}"

struct detd {
    uv_loop_t loop;
    struct wires wires;
    struct store *store;
    struct events events;
    struct turns turns;
    struct jobs jobs;
    struct gpus gpus;
    struct runner runner;
    struct gpu_node *gpu_node;
    struct ingest *ingest;
    struct removals removals;
    struct shares shares;
    bool stopping;
};
static struct detd *detd; /* NULL: no daemon runs */
static int started;
int detd_number;

/* ---- hooks ---- */

static bool wanted(void *arg, unsigned topic)
{
    (void)arg;
    return topic == TOPIC_JOBS || topic == TOPIC_EVENTS;
}

static void tell(void *arg, unsigned topic, int64_t job, const char *json)
{
    (void)arg;
    if (topic == TOPIC_EVENTS)
        say("job %lld: event %s", (long long)job, json);
    else
        check_view(job, json);
}

static void send_word(void *arg, struct job *j, const char *word, const char *tier)
{
    (void)arg;
    ingest_send_word(j, word, tier);
}

static void look_who_runs(void *arg)
{
    struct detd *d = arg;

    run_schedule(&d->runner);
}

static void drop_spool(void *arg, const struct job *j)
{
    struct detd *d = arg;

    spent_job(&d->jobs, j);
}

static void take_slots(void *arg)
{
    struct detd *d = arg;

    run_take_slots(&d->runner);
}

static void connected(void *arg, struct job *j)
{
    struct detd *d = arg;

    run_connected(&d->runner, j);
}

static void gone(void *arg, struct job *j)
{
    struct detd *d = arg;

    run_disconnected(&d->runner, j);
}

/* ---- life ---- */

static int open_parts(struct detd *d, struct err *err)
{
    struct ingest_config ingest = { &d->loop, &d->wires, NULL, &d->jobs, &d->events, "state", world.plan.liars, connected, gone, d };
    struct gpu_node_config gpus = { &d->loop, NULL, &d->jobs, &d->gpus, &d->events, NULL, 10, take_slots, look_who_runs, d };
    int rc = store_open(world.plan.folder, &d->loop, &d->store, err);

    ingest.store = gpus.store = d->events.store = d->jobs.store = d->runner.store = d->store;
    if (rc == 0)
        rc = shares_open(&d->shares, d->store, world.mono, err);
    if (rc == 0)
        rc = jobs_load(&d->jobs, err);
    if (rc == 0)
        rc = ingest_open(&ingest, &d->ingest, err);
    if (rc < 0)
        return rc;
    run_adopt(&d->runner);
    removal_resume(&d->removals);
    rc = gpu_node_open(&gpus, &d->gpu_node, err);
    d->runner.gpu_node = d->gpu_node;
    return rc;
}

void detd_scope_is_empty(int64_t job, bool exited)
{
    run_scope_is_empty(&detd->runner, job, exited);
}

bool detd_is_idle(void)
{
    bool idle = !detd || run_cpu_free(&detd->runner) == WORLD_SLOTS;

    for (int i = 0; detd && i < detd->gpus.count; i++)
        idle = idle && detd->gpus.all[i].job == 0;
    return idle;
}

static void forget(void)
{
    loop_forget();
    launch_detd_died();
    detd = NULL;
    detd_number = 0;
}

void detd_start(void)
{
    static bool made; /* the database was made: from then on even a full disk keeps no detd from starting */
    struct detd *d = must_alloc(sizeof *d);
    struct err err;
    int rc;

    d->events = (struct events){ .wanted = wanted, .tell = tell, .arg = d };
    turns_init(&d->turns, &d->loop);
    d->jobs = (struct jobs){ .turns = &d->turns,
                             .events = &d->events,
                             .folder = "jobs",
                             .leave_s = world.plan.liars ? LEAVE_S : 0,
                             .hooks = { .word = send_word, .wished = look_who_runs, .ended = drop_spool, .arg = d } };
    d->removals = (struct removals){ .jobs = &d->jobs, .stopping = &d->stopping };
    d->runner = (struct runner){ .loop = &d->loop,
                                 .jobs = &d->jobs,
                                 .gpus = &d->gpus,
                                 .events = &d->events,
                                 .cpu_slots = WORLD_SLOTS,
                                 .shares = &d->shares,
                                 .user_running = world.plan.user_running };
    detd = d;
    detd_number = ++started;
    say("detd %d starts", detd_number);
    if (world.faults && chance(3 * (int)world.rates.weight[FAULT_TORN]))
        disk_tear(true);
    rc = open_parts(d, &err);
    if (rc < 0 && !disk_is_torn() && (made || !world.disk_full))
        fail("detd does not start: %s", err.msg);
    if (rc < 0 || disk_is_torn()) {
        detd_torn();
        return;
    }
    made = true;
    check_open();
    check_store(); /* with the same answers as for any client */
    for (int i = 0; i < world.njobs; i++) {
        world.jobs[i].told = world.jobs[i].reopened;
        world.jobs[i].overdue_s = 0;
    }
    if (world.faults && chance(2 * (int)world.rates.weight[FAULT_POWER]))
        power_off();
}

void detd_crash(void)
{
    say("detd %d is killed", detd_number);
    forget();
    check_store();
    for (int i = 0; i < world.njobs; i++)
        check_rows(&world.jobs[i]);
    disk_crash(false);
}

/* Its writes are not checked before the next daemon writes: they may still be lost with the power, and no client has
 * heard of them. */
void detd_torn(void)
{
    say("detd %d is killed in the midst of a transaction", detd_number);
    forget();
    disk_crash(false);
}

void detd_power_off(void)
{
    if (detd)
        forget();
}

/* Ends like daemon_run(): answers under way are given, jobs run on. */
void detd_stop(void)
{
    struct detd *d = detd;

    say("detd %d stops", detd_number);
    disk_tear(false);
    d->runner.stopping = d->stopping = true;
    removal_stop(&d->removals);
    gpu_node_stop(d->gpu_node);
    ingest_close(d->ingest);
    while (pool_step() || loop_turn())
        ;
    d->jobs.turns = NULL;
    store_close(d->store);
    forget();
    check_store();
}

/* Another job waits for its slots. */
static bool is_late(const struct job *j)
{
    return j->leave_by > 0 && mono_s() > j->leave_by && j->row.want != JOB_WANT_CANCEL;
}

bool detd_job_is_late(int64_t id)
{
    const struct job *j = jobs_find(&detd->jobs, id);

    return j && is_late(j);
}

/* Whether detd is to end the processes of this job by itself, or has ended the job. */
static bool is_overdue(const struct job *j)
{
    return !job_is_live(j->row.state) || jobs_sure(j)->want == JOB_WANT_CANCEL || is_late(j) ||
           (j->row.time_limit > 0 && j->row.held > j->row.time_limit + LEAVE_S + LIFE_MARGIN_S);
}

static void check_deadlines(struct detd *d)
{
    for (int i = 0; i < world.njobs; i++) {
        struct folder *f = &world.jobs[i];
        const struct job *j = jobs_find(&d->jobs, f->id);

        if (!j || !f->liar || !is_overdue(j))
            f->overdue_s = 0;
        else if (!world.disk_full && !world.busy_till && ++f->overdue_s > (is_late(j) && job_is_live(j->row.state) ? KILL_S : OVERDUE_S))
            fail("job %lld is %s, and for %d s the processes of its hostile user have not been ended", (long long)f->id,
                 job_state_name(j->row.state), f->overdue_s);
    }
}

/* After each line of a connection its user's rows are counted. So each job may be one report ahead, and one piece of a
 * rewind. Room for the next report of another user without admin rights must be left. */
void detd_check_shares(void)
{
    const struct user_share *share = detd ? user_shares_of(&detd->jobs.shares, HOSTILE) : NULL;
    int64_t most = bounds[BOUND_QUEUED_ROWS].share + WORLD_JOBS * REPORT_MAX_TERMS;
    struct bound_load load;
    struct err err;

    if (!share)
        return;
    for (int i = 0; i < detd->jobs.count; i++)
        most += detd->jobs.all[i]->rewinding ? STORE_PIECE_ROWS : 0;
    if (share->rows < 0 || share->rows > most)
        fail("%lld rows of the hostile user wait for the database, of %lld that the user may have", (long long)share->rows,
             (long long)most);
    load = (struct bound_load){ (int64_t)store_backlog(detd->store), share->rows, REPORT_MAX_TERMS };
    if (bound_check(BOUND_QUEUED_ROWS, &load, false, &err) < 0)
        fail("another user has to wait for the hostile one: %s", err.msg);
}

static void tick_due(void *arg)
{
    struct detd *d = arg;

    check_deadlines(d);

    gpu_node_tick(d->gpu_node);
    run_tick(&d->runner);
    usage_tick(&d->jobs, &d->gpus);
    shares_tick(&d->shares, &d->jobs, world.mono);
    removal_tick(&d->removals);
    if (chance(5))
        store_shrink(d->store);
}

void detd_tick(void)
{
    if (detd)
        loop_post(tick_due, detd);
}

/* ---- clients ---- */

static void submitted(void *arg, int rc, int64_t id, const struct err *err)
{
    struct folder *f = arg;

    if (rc < 0) {
        say("submission %s is refused: %s", f->token, err->msg);
        if (rc == ERR_NOTFOUND ||
            (rc == ERR_STATE && strcmp(err->field, "run.after") == 0)) /* the job that it was to run after is gone, or failed */
            f->after = 0;
        return;
    }
    say("submission %s is job %lld%s", f->token, (long long)id, rc ? ", again" : "");
    check_store();
    if (f->id != id)
        fail("submission %s is job %lld for the client, and job %lld in the store", f->token, (long long)id, (long long)f->id);
    f->answered = true;
}

static void send_submission(struct folder *f)
{
    struct job_row row = { .state = JOB_QUEUED,
                           .want_tier = -1,
                           .tier = 1,
                           .cuda = f->cuda,
                           .ranks = f->ranks,
                           .ranks_per_gpu = 1,
                           .threads = f->threads,
                           .uid = f->uid,
                           .priority = f->uid == HOSTILE && !world.plan.liars ? 2 : f->slot % 3,
                           .after = f->after,
                           .after_ok = f->after_ok,
                           .restarts = f->restarts,
                           .steps = f->steps,
                           .submitted = now_s(),
                           .time_limit = f->time_limit,
                           .name = "sim",
                           .user = "ann" };

    memcpy(row.ticket, f->ticket, sizeof f->ticket);
    f->submits++;
    jobs_submit(&detd->jobs, &row, f->token, SPEC, "", submitted, f);
}

static void new_submission(void)
{
    struct folder *f = &world.jobs[world.njobs];

    bool cuda = world.plan.gpus && chance(50);

    *f = (struct folder){ .slot = world.njobs,
                          .uid = chance(60) ? HOSTILE : HOSTILE + 1 + roll(2),
                          .cuda = cuda,
                          .ranks = 1 + (int)roll(cuda ? (uint32_t)world.plan.gpus : 2),
                          .threads = 1 + (int)roll(2),
                          .steps = 4 + (int)roll(WORLD_STEPS - 3),
                          .restarts = (int)roll(4),
                          .save_every = 1 + (int)roll(4),
                          .fails_at = chance(15) ? 1 + (int)roll(8) : 0 };
    snprintf(f->token, sizeof f->token, "t%d", world.njobs);
    if (world.plan.liars && f->uid == HOSTILE) {
        snprintf(f->ticket, sizeof f->ticket, "ticket-%d", world.njobs);
        f->time_limit = chance(50) ? 50 + (int)roll(300) : 0;
    }
    if (world.njobs && chance(30)) {
        f->after = world.jobs[roll((uint32_t)world.njobs)].id;
        f->after_ok = chance(60);
    }
    world.njobs++;
    send_submission(f);
}

static void wish_done(void *arg, int rc, int64_t id, const struct err *err)
{
    (void)arg;
    if (rc < 0)
        say("job %lld: a wish is refused: %s", (long long)id, err->msg);
}

static void removal_done(void *arg, int rc, int64_t id, const struct err *err)
{
    (void)arg;
    if (rc < 0) {
        say("job %lld: its removal is refused: %s", (long long)id, err->msg);
        return;
    }
    check_store();
    if (!folder_of(id)->gone)
        fail("job %lld: a user hears that it was removed, and the store has it", (long long)id);
}

/* For any job: the removal of a job that has not ended must be refused. */
static void wish_removal(struct folder *f, const struct job *j)
{
    struct err err;

    say("job %lld: a user wishes that it were removed", (long long)f->id);
    f->removed = true;
    if (removal_begin(&detd->removals, &j->row, "ann", removal_done, NULL, &err) < 0)
        say("job %lld: that is refused: %s", (long long)f->id, err.msg);
    else if (!job_is_done(j->row.state))
        fail("job %lld is %s, and is removed", (long long)f->id, job_state_name(j->row.state));
}

static void reopened(void *arg, int rc, int64_t id, const struct err *err)
{
    struct folder *f = arg;

    if (rc < 0) {
        say("job %lld: it is not queued again: %s", (long long)id, err->msg);
        return;
    }
    check_store();
    f->told = f->reopened;
    if (f->more || f->again)
        fail("job %lld: a user hears that it is queued again, and it is not so in the store", (long long)id);
}

static bool may_reopen(const struct job *j)
{
    return !j->leaving && !j->reopening && !j->hidden_until && !j->unsaved;
}

/* The same as in methods_reopen.c. The row comes from memory here, from the store there. */
static void wish_more(struct folder *f, const struct job *j)
{
    struct job_row row = j->row;
    struct err err;

    if (!may_reopen(j) || row.steps >= WORLD_STEPS || job_apply(&row, JOB_EV_EXTEND, "", now_s(), &err) < 0)
        return;
    f->more = (int)row.steps + 1 + (int)roll((uint32_t)(WORLD_STEPS - row.steps));
    say("job %lld: a user wishes %d steps", (long long)f->id, f->more);
    row.steps = f->more;
    jobs_reopen(&detd->jobs, &row, SPEC, j->losses, reopened, f);
}

/* The same as wish_more(), for a failed job. The cause of its failure may be mended. */
static void wish_again(struct folder *f, const struct job *j)
{
    struct job_row row = j->row;
    struct err err;

    if (!may_reopen(j) || f->end != JOB_FAILED || job_apply(&row, JOB_EV_RESUME, "", now_s(), &err) < 0)
        return;
    say("job %lld: a user wishes that it went on after its failure", (long long)f->id);
    f->again = true;
    if (chance(50))
        f->fails_at = 0;
    jobs_reopen(&detd->jobs, &row, NULL, j->losses, reopened, f);
}

static void wish(struct folder *f, struct job *j)
{
    struct err err;
    uint32_t what = roll(9);

    if ((what == 3 || what == 4) && j->row.state == JOB_FAILED) {
        wish_again(f, j);
        return;
    }
    say("job %lld: a user wishes %s", (long long)f->id,
        what == 0   ? "cancel"
        : what <= 2 ? "pause"
        : what <= 4 ? "resume"
        : what <= 6 ? "a checkpoint or eval"
        : what == 7 ? "a tier"
                    : "another priority");
    f->cancelled = f->cancelled || what == 0;
    f->paused = f->paused || what == 1 || what == 2;
    if (what <= 4)
        jobs_command(&detd->jobs, j, what == 0 ? JOB_EV_CANCEL : what <= 2 ? JOB_EV_PAUSE : JOB_EV_RESUME, wish_done, NULL, &err);
    else if (what <= 6)
        jobs_want_checkpoint(&detd->jobs, j, what == 5, wish_done, NULL, &err);
    else if (what == 8)
        jobs_want_priority(&detd->jobs, j, (int)roll(5), wish_done, NULL, &err);
    else
        jobs_want_tier(&detd->jobs, j, (int)roll(3), wish_done, NULL, &err);
}

void client_step(void)
{
    struct folder *f = world.njobs ? &world.jobs[roll((uint32_t)world.njobs)] : NULL;
    struct job *j;

    if (!detd)
        return;
    if (world.njobs < WORLD_JOBS && (!f || chance(40)))
        new_submission();
    else if (!f->answered || chance(15))
        send_submission(f);
    else if ((j = jobs_find(&detd->jobs, f->id)) && j->row.state == JOB_COMPLETED && chance(40))
        wish_more(f, j);
    else if (j && j->row.state == JOB_FAILED && chance(40))
        wish_again(f, j);
    else if (j && chance(job_is_done(j->row.state) ? 60 : 10))
        wish_removal(f, j);
    else if (j)
        wish(f, j);
}

static void released(void *arg, int rc, int64_t value, const struct err *err)
{
    (void)arg;
    (void)rc;
    (void)value;
    (void)err;
}

/* An admin has looked at the GPUs. */
static void release_gpus(void)
{
    struct err err;

    for (int i = 0; i < detd->gpus.count; i++)
        if (detd->gpus.all[i].quarantine[0])
            gpu_node_release(detd->gpu_node, detd->gpus.all[i].seen.uuid, released, NULL, &err);
}

/* An admin has seen enough of it. */
static void end_hostile(struct folder *f, struct job *j)
{
    struct err err;

    f->cancelled = true;
    if (jobs_sure(j)->want != JOB_WANT_CANCEL)
        jobs_command(&detd->jobs, j, JOB_EV_CANCEL, wish_done, NULL, &err);
}

/* In the end users want all jobs to have ended. */
void clients_resume(bool enough)
{
    struct err err;

    if (detd)
        release_gpus();
    for (int i = 0; detd && i < world.njobs; i++) {
        struct folder *f = &world.jobs[i];
        struct job *j = jobs_find(&detd->jobs, f->id);

        if (!f->answered)
            send_submission(f);
        else if (j && f->ticket[0] && !job_is_done(j->row.state) && enough)
            end_hostile(f, j);
        else if (j && !job_is_done(j->row.state) && (j->row.state == JOB_PAUSED || j->row.want == JOB_WANT_PAUSE))
            jobs_command(&detd->jobs, j, JOB_EV_RESUME, wish_done, NULL, &err);
    }
}
