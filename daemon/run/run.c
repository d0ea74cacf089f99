#include "daemon/run/run.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/jobs/after.h"
#include "daemon/base/clock.h"
#include "daemon/base/errand.h"
#include "daemon/jobs/event.h"
#include "daemon/gpu/gpu.h"
#include "daemon/run/gpu_node.h"
#include "daemon/run/ingest.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/kill.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/run/slots.h"
#include "daemon/run/spent.h"
#include "daemon/store/store.h"
#include "proto/err.h"
#include "proto/report.h"

/* ---- slots ---- */

static bool gpu_is_of(const struct gpu *g, const struct job *j)
{
    const char *at = strstr(j->row.gpus, g->seen.uuid);
    size_t n = strlen(g->seen.uuid);

    return at && (at == j->row.gpus || at[-1] == ',') && (at[n] == '\0' || at[n] == ',');
}

void run_take_slots(struct runner *r)
{
    struct sched_node node = slots_node(r);

    for (int i = 0; i < r->jobs->count; i++) {
        struct job *j = r->jobs->all[i];
        struct sched_job view = slots_view(r, j);

        if (!slots_are_held(j))
            continue;
        j->cpu_slots = sched_cpu_need(&view, &node);
        for (int g = 0; g < r->gpus->count; g++)
            if (gpu_is_of(&r->gpus->all[g], j))
                r->gpus->all[g].job = j->row.id;
    }
}

static int take_some(struct runner *r, struct job *j, int count, bool instances)
{
    for (int i = 0; i < r->gpus->count && count > 0; i++) {
        struct gpu *g = &r->gpus->all[i];
        size_t len = strlen(j->row.gpus);

        if (gpu_state(g) != GPU_FREE || (strncmp(g->seen.uuid, "MIG-", 4) == 0) != instances)
            continue;
        g->job = j->row.id;
        snprintf(j->row.gpus + len, sizeof j->row.gpus - len, "%s%s", len ? "," : "", g->seen.uuid);
        count--;
    }
    return count;
}

/* Takes whole GPUs first: the ranks run in lockstep, so the slowest device sets the pace of all. */
static void take_gpus(struct runner *r, struct job *j, int count)
{
    j->row.gpus[0] = '\0';
    take_some(r, j, take_some(r, j, count, false), true);
}

/* Ends the job's grants: gives back its slots and GPUs. */
static void release(struct runner *r, struct job *j)
{
    j->cpu_slots = 0;
    j->trouble[0] = '\0';
    if (!j->row.gpus[0])
        return;
    j->row.gpus[0] = '\0';
    gpu_node_job_left(r->gpu_node, j->row.id);
    job_changed(r->jobs, j);
}

/* ---- facts ---- */

static bool is_cancelled(const struct job *j)
{
    return jobs_sure(j)->want == JOB_WANT_CANCEL;
}

/* The job is not to run any more, and its end is still to be written. */
static bool is_to_end(const struct job *j)
{
    return is_cancelled(j) || j->row.deaths > j->row.restarts;
}

static void tell_life(struct runner *r, struct job *j, enum life_fact fact, const char *why);

/* The lock tells whether any process of the job lives. */
static void look(struct runner *r, struct job *j)
{
    if (!j->sup && life_is_to_look(&j->life) && launch_lock_is_free(r->jobs->folder, j->row.id))
        tell_life(r, j, job_is_live(j->row.state) ? LIFE_FACT_LOST : LIFE_FACT_LEFT, "");
}

/* A cancelled job has a deadline of its own. */
static bool is_late(const struct job *j)
{
    return j->leave_by > 0 && mono_s() > j->leave_by && !is_cancelled(j);
}

static void look_at_clock(struct runner *r, struct job *j)
{
    enum life_fact fact = life_clock(&j->life, mono_s());

    if (is_late(j) && (j->life.phase == LIFE_STARTED || j->life.phase == LIFE_CONNECTED))
        fact = LIFE_FACT_OVERDUE;
    if (fact != LIFE_FACT_COUNT && !r->stopping)
        tell_life(r, j, fact, "");
}

/* ---- ends that detd writes itself ---- */

static void tell_end(const struct job *j, char *ret, size_t size)
{
    ret[0] = '\0';
    if (!is_cancelled(j))
        snprintf(ret, size, "the supervisor was lost %d times in a row without a newer checkpoint", j->row.deaths);
}

static void end(struct runner *r, struct job *j, enum job_event event, const char *why)
{
    job_apply(&j->row, event, why, now_s(), NULL);
    j->phase[0] = '\0';
    j->untold = true;
    jobs_save(r->jobs, j);
    job_changed(r->jobs, j);
    tell_life(r, j, LIFE_FACT_ENDED, "");
    look(r, j);
    run_schedule(r);
}

bool run_is_ownerless(const struct runner *r, const struct job *j)
{
    return r->launcher && !j->row.ticket[0];
}

/* Ends a job whose supervisors never came so far as to make a spool: there is nothing to read. An ownerless job gets no
 * supervisor that could read it. */
static bool end_unrecorded(struct runner *r, struct job *j)
{
    char why[120];

    if (!is_to_end(j) || (!run_is_ownerless(r, j) && (j->row.last_seq > 0 || launch_has_spool(r->jobs->folder, j->row.id))))
        return false;
    tell_end(j, why, sizeof why);
    end(r, j, is_cancelled(j) ? JOB_EV_END_CANCELLED : JOB_EV_END_FAILED, why);
    return true;
}

/* For example a supervisor that finds a damaged file or lacks a library: further tries would find the same. Its spool
 * stays. */
static void end_mute(struct runner *r, struct job *j, const char *why)
{
    char text[JOB_REASON_MAX + 1];
    bool unread = launch_has_spool(r->jobs->folder, j->row.id);

    snprintf(text, sizeof text, "%s%s", unread ? JOB_SPOOL_UNREAD ": " : "", why);
    end(r, j, JOB_EV_END_FAILED, text);
}

/* The database is a copy from before the job ended. Its spool has been removed since, and would only say the same. */
static void end_as_before(struct runner *r, struct job *j, const struct launch_end *was)
{
    enum job_event event = was->state == JOB_COMPLETED ? JOB_EV_END_COMPLETED
                           : was->state == JOB_FAILED  ? JOB_EV_END_FAILED
                                                       : JOB_EV_END_CANCELLED;

    event_add(r->events, j->row.id, "warning", "ended_before",
              "its end is taken from jobs/%lld/end: a later copy of the database had stored it, and the reports after number %lld",
              (long long)j->row.id, (long long)j->row.last_seq);
    end(r, j, event, was->reason);
}

/* ---- waiting jobs ---- */

static void tell_trouble(struct runner *r, struct job *j, const char *kind, const char *why)
{
    if (strncmp(j->told, why, sizeof j->told - 1) != 0)
        event_add(r->events, j->row.id, "warning", kind, "%s", why);
    snprintf(j->trouble, sizeof j->trouble, "%.255s", why);
    memcpy(j->told, j->trouble, sizeof j->told);
}

/* The job is queued again, or paused if that was asked for. The reports in its spool are read when it runs again, and
 * kept if it never does. */
static void give_slots_back(struct runner *r, struct job *j)
{
    bool unread = launch_has_spool(r->jobs->folder, j->row.id);
    char why[sizeof j->trouble];

    snprintf(why, sizeof why, "%s%.230s", unread ? JOB_SPOOL_UNREAD ": " : "", j->trouble);
    j->row.attempt -= !j->life.written; /* it never began: the next start has the same number */
    job_apply(&j->row, JOB_EV_END_PAUSED, why, now_s(), NULL);
    j->phase[0] = '\0';
    jobs_save(r->jobs, j);
    job_changed(r->jobs, j);
    tell_life(r, j, LIFE_FACT_ENDED, "");
    look(r, j);
}

/* The job waits for a start, so no process of it lives. If starts are refused again and again it gives its slots back,
 * unless its spool may hold reports: a cancel of a queued job would lose them. A job with a ticket gives them back in
 * any case. If supervisors of such a job never reach the end of its spool, the submitter may be the cause, and the job
 * ends as it is. last: why the last supervisor did not, "": unknown. */
static void do_without(struct runner *r, struct job *j, const char *last)
{
    char text[sizeof j->trouble];

    if (j->life.phase != LIFE_WAITING)
        return;
    if (j->row.ticket[0] && is_to_end(j) && j->life.drains > LIFE_DRAINS_MAX) {
        snprintf(text, sizeof text, JOB_SPOOL_UNREAD ": %d supervisors did not read it to its end in jobs/%lld%s%.120s", LIFE_DRAINS_MAX,
                 (long long)j->row.id, last[0] ? ": " : "", last);
        end(r, j, JOB_EV_END_FAILED, text);
    } else if (!is_cancelled(j) && !j->wishes && life_is_in_vain(&j->life, mono_s()) && (j->row.ticket[0] || !j->life.written)) {
        give_slots_back(r, j);
    }
}

/* After a refused start: a supervisor that only reads the spool of a cancelled job needs no slots, however long its
 * start takes. Processes that its last one has left behind keep them. */
static void drain_without_slots(struct runner *r, struct job *j)
{
    if (!is_cancelled(j) || j->life.phase != LIFE_WAITING || !launch_lock_is_free(r->jobs->folder, j->row.id))
        return;
    if (j->life.drains == 0)
        j->life.drains = 1;
    if (j->cpu_slots == 0 && !j->row.gpus[0])
        return;
    release(r, j);
    jobs_save(r->jobs, j);
}

/* ---- starting ---- */

struct launching {
    struct runner *r;
    struct launch_request rq;
    struct launched *started;
    int rc;
    struct err err;
};

static void launch_work(void *arg)
{
    struct launching *l = arg;

    l->rc = launch_start(l->r->store, &l->rq, &l->r->stopping, &l->started, &l->err);
}

/* The lock will tell when the supervisor has left. Why it left stays unknown: it may have died, or lacked something. So
 * that counts as a death only after its hello. */
static void leave_unwatched(struct job *j)
{
    j->life.child = false;
    j->life.unseen = true;
    j->life.known = j->life.phase == LIFE_CONNECTED;
}

/* A refused supervisor that was to drain the spool counts as one that did not reach the spool's end, and pauses between
 * tries are counted from the first of them. A start that never got so far, as while detd-launch is away, does not
 * count. */
static void count_refused_drain(struct job *j, int status)
{
    if (status == SUP_EXIT_REFUSED && j->life.phase == LIFE_STARTED && is_cancelled(j))
        j->life.refusals = j->life.drains++;
}

static void on_supervisor_exit(void *arg, int64_t id, int status, const char *why)
{
    struct runner *r = arg;
    struct job *j = jobs_find(r->jobs, id);

    if (!j || r->stopping)
        return;
    if (status == LAUNCH_UNWATCHED) {
        leave_unwatched(j);
        look(r, j);
        return;
    }
    j->exit_status = status;
    tell_life(r, j, LIFE_FACT_EXITED, "");
    count_refused_drain(j, status);
    if (status == SUP_EXIT_REFUSED)
        tell_life(r, j, LIFE_FACT_REFUSED, why);
    else if (status == SUP_EXIT_UNREADABLE)
        tell_life(r, j, LIFE_FACT_UNREADABLE, why);
    else if (status == SUP_EXIT_UNREACHABLE)
        tell_life(r, j, LIFE_FACT_UNREACHABLE, why);
    j = jobs_find(r->jobs, id);
    if (j)
        look(r, j);
}

static enum life_fact launch_fact(int rc)
{
    switch (rc) {
    case 0:
        return LIFE_FACT_READY;
    case -EWOULDBLOCK:
        return LIFE_FACT_HELD;
    case -ENODATA:
        return LIFE_FACT_UNREADABLE;
    default:
        return LIFE_FACT_REFUSED;
    }
}

/* A job with a ticket was only prepared on the thread; detd-launch starts it. */
static void start_with_ticket(struct runner *r, struct launching *l, bool wanted)
{
    if (wanted && !l->rq.end.state) {
        l->rc = launcher_start(r->launcher, &l->rq, on_supervisor_exit, r, &l->err);
        return;
    }
    launch_drop(&l->rq);
}

/* The supervisor may have said hello already, and left. If nothing was started, that hello came from an earlier process
 * of the job, whose exit will not be reported. */
static void launch_after(void *arg)
{
    struct launching *l = arg;
    struct runner *r = l->r;
    struct job *j = jobs_find(r->jobs, l->rq.job);
    bool wanted = j && j->life.phase == LIFE_PREPARING && !r->stopping;

    if (j && l->rq.moved[0])
        event_add(r->events, j->row.id, "warning", "folder", "jobs/%lld was left by another job of that number; it was renamed to jobs/%s",
                  (long long)j->row.id, l->rq.moved);
    if (l->rc == 0 && l->rq.ticket[0])
        start_with_ticket(r, l, wanted);
    if (wanted && l->rq.end.state)
        end_as_before(r, j, &l->rq.end);
    else if (wanted)
        tell_life(r, j, l->rc < 0 && l->rq.unusable ? LIFE_FACT_UNREACHABLE : launch_fact(l->rc), l->err.msg);
    if (j && !wanted && !l->started)
        j->life.child = false;
    if (l->started && launch_watch(r->loop, l->started, on_supervisor_exit, r) < 0 && j)
        leave_unwatched(j);
    free(l);
}

static void fill_request(struct runner *r, const struct job *j, struct launch_request *rq)
{
    *rq = (struct launch_request){ .job = j->row.id,
                                   .attempt = j->row.attempt,
                                   .last_seq = j->row.last_seq,
                                   .submitted = j->row.submitted,
                                   .saved = j->saved,
                                   .ran_s = (int64_t)j->row.limited,
                                   .store_id = store_id(r->store),
                                   .threads = j->row.threads,
                                   .slots = slots_of_ranks(r, j),
                                   .tier = j->row.tier,
                                   .log_max = r->log_max,
                                   .jobs_dir = r->jobs->folder,
                                   .gpu_locks = r->gpu_locks };
    if (is_to_end(j)) {
        rq->drain = is_cancelled(j) ? JOB_CANCELLED : JOB_FAILED;
        tell_end(j, rq->reason, sizeof rq->reason);
    }
    rq->spec_fd = -1;
    memcpy(rq->ticket, j->row.ticket, sizeof rq->ticket);
    memcpy(rq->nonce, j->row.nonce, sizeof rq->nonce);
    memcpy(rq->gpus, j->row.gpus, sizeof rq->gpus);
}

static void launch(struct runner *r, struct job *j)
{
    struct launching *l = calloc(1, sizeof *l);

    if (!l) {
        tell_life(r, j, LIFE_FACT_REFUSED, "out of memory");
        return;
    }
    l->r = r;
    fill_request(r, j, &l->rq);
    if (errands_add(r->jobs->errands, launch_work, launch_after, l) < 0) {
        free(l);
        tell_life(r, j, LIFE_FACT_REFUSED, "out of memory");
    }
}

struct commit {
    struct runner *r;
    int64_t id;
};

static int new_nonce(char *ret)
{
    unsigned char bytes[JOB_NONCE_LEN / 2];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -errno;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static void renewed(void *arg, int rc, int64_t value, const struct err *err)
{
    struct commit *c = arg;
    struct job *j = jobs_find(c->r->jobs, c->id);

    (void)value;
    if (j && j->life.phase == LIFE_PREPARING) {
        if (rc == 0) {
            launch(c->r, j);
        } else {
            j->row.nonce[0] = '\0';
            tell_life(c->r, j, LIFE_FACT_REFUSED, err->msg);
        }
    }
    free(c);
}

/* The nonce was dropped when the job's scope was found empty. A new one must be durable before the fork, as at the
 * first start. */
static void renew(struct runner *r, struct job *j)
{
    struct commit *c = malloc(sizeof *c);

    if (!c || new_nonce(j->row.nonce) < 0) {
        free(c);
        tell_life(r, j, LIFE_FACT_REFUSED, "no memory, or no random numbers, for its nonce");
        return;
    }
    *c = (struct commit){ r, j->row.id };
    if (store_save(r->store, &j->row, renewed, c) < 0)
        renewed(c, -ENOMEM, 0, &(struct err){ .code = -ENOMEM, .msg = "out of memory" });
}

/* A job that should have left its slots by now gets no further supervisor, which would be killed at once. */
static void prepare(struct runner *r, struct job *j, const char *why)
{
    (void)why;
    if (end_unrecorded(r, j))
        return;
    if (run_is_ownerless(r, j) || (is_late(j) && !j->wishes))
        give_slots_back(r, j);
    else if (j->row.nonce[0])
        launch(r, j);
    else
        renew(r, j);
}

static void start_committed(void *arg, int rc, int64_t value, const struct err *err)
{
    struct commit *c = arg;
    struct job *j = jobs_find(c->r->jobs, c->id);

    (void)value;
    (void)err;
    if (j) {
        tell_life(c->r, j, rc == 0 ? LIFE_FACT_COMMITTED : LIFE_FACT_UNCOMMITTED, "");
        do_without(c->r, j, "");
        j = jobs_find(c->r->jobs, c->id);
    }
    if (j)
        look_at_clock(c->r, j);
    free(c);
}

/* Attempt, nonce and slots must be durable before the fork. Then, whatever dies in between, the next detd knows which
 * supervisor may speak for the job. */
static void commit(struct runner *r, struct job *j, const char *why)
{
    struct commit *c = malloc(sizeof *c);

    (void)why;
    if (!c || new_nonce(j->row.nonce) < 0) {
        free(c);
        tell_life(r, j, LIFE_FACT_UNCOMMITTED, "");
        return;
    }
    if (j->row.attempt >= JOB_ATTEMPT_MAX && !is_to_end(j)) {
        free(c);
        end_mute(r, j, "it has had 1000000 attempts, the most that a job may have");
        return;
    }
    *c = (struct commit){ r, j->row.id };
    j->row.attempt += !is_to_end(j);
    j->counts = false;
    snprintf(j->phase, sizeof j->phase, "starting");
    job_changed(r->jobs, j);
    store_save(r->store, &j->row, start_committed, c);
}

static void grant(struct runner *r, const struct sched_grant *g)
{
    struct job *j = jobs_find(r->jobs, g->id);

    if (!j || job_apply(&j->row, JOB_EV_GRANT, "", now_s(), NULL) < 0)
        return;
    j->row.threads = g->threads;
    j->row.want = JOB_WANT_RUN;
    j->cpu_slots = g->cpu_slots;
    j->off_gpu = false;
    j->yields_to = 0;
    j->leave_by = 0;
    j->row.backfill = g->backfill;
    j->life = (struct life){ .refusals = j->life.refusals, .unreachable = j->life.unreachable, .mute = j->life.mute };
    take_gpus(r, j, g->gpus);
    if (!j->told[0]) /* else it is one of many tries, and told already */
        event_add(r->events, j->row.id, "info", "state",
                  g->backfill ? "starting as backfill, before a job that waits for more slots" : "starting");
    tell_life(r, j, LIFE_FACT_GRANTED, "");
}

/* A backfill job writes a checkpoint, as for a pause, and is queued again. A supervisor that is not connected is told
 * when it connects. A job that its owner has paused is already writing a checkpoint, and now gets a deadline. */
static void make_room(struct runner *r, int64_t id, int64_t head)
{
    struct job *j = jobs_find(r->jobs, id);

    if (!j)
        return;
    j->yields_to = head;
    event_add(r->events, id, "info", "room", "makes room for job %lld: %s", (long long)head,
              j->row.state != JOB_STOPPING ? "it writes a checkpoint and is queued again"
              : r->jobs->leave_s > 0       ? "its pause has a deadline from now on"
                                           : "it is paused");
    jobs_send_away(r->jobs, j);
    job_changed(r->jobs, j);
}

/* Processes of an earlier run may still be on their way out: the job keeps its nonce until they have left. */
static bool may_start(struct runner *r, struct job *j)
{
    if (j->row.state != JOB_QUEUED || j->row.after || j->life.phase != LIFE_IDLE || j->wishes || run_is_ownerless(r, j))
        return false;
    if (!j->row.nonce[0] || launch_lock_is_free(r->jobs->folder, j->row.id))
        return true;
    tell_life(r, j, LIFE_FACT_FOUND, "");
    return false;
}

/* Ends a job that was to run after a job that did not complete. Jobs are looked at in the order of ids, so jobs that
 * were to run after this one end too. */
static void look_at_after(struct runner *r, struct job *j)
{
    const struct job *other;
    enum after after;
    char why[120];

    if ((j->row.state != JOB_QUEUED && j->row.state != JOB_PAUSED) || j->row.after == 0 || j->wishes ||
        (after = after_look(r->jobs, j, &other)) == AFTER_WAITS || (after == AFTER_NEVER && j->row.state == JOB_PAUSED))
        return;
    if (after == AFTER_NEVER) {
        snprintf(why, sizeof why, "job %lld, after which it was to run, %s", (long long)j->row.after,
                 !other                           ? "was removed"
                 : other->row.state == JOB_FAILED ? "failed"
                                                  : "was cancelled");
        job_apply(&j->row, JOB_EV_CANCEL, why, now_s(), NULL);
        j->untold = true;
    }
    j->row.after = 0;
    jobs_save(r->jobs, j);
    job_changed(r->jobs, j);
}

void run_schedule(struct runner *r)
{
    struct sched_job *queue;
    struct sched_grant *grants;
    struct sched_node node;
    bool cuda = false;
    int n = 0, granted;

    for (int i = 0; i < r->jobs->count && !r->stopping; i++)
        look_at_after(r, r->jobs->all[i]);
    if (r->stopping || r->drained[0] || r->jobs->count == 0)
        return;
    queue = calloc((size_t)r->jobs->count, sizeof *queue);
    grants = calloc((size_t)r->jobs->count, sizeof *grants);
    for (int i = 0; queue && grants && i < r->jobs->count; i++) {
        struct job *j = r->jobs->all[i];

        if (may_start(r, j)) {
            queue[n++] = slots_view(r, j);
            cuda = cuda || j->row.cuda;
        }
    }
    if (cuda)
        gpu_node_look_at_locks(r->gpu_node);
    node = slots_node(r);
    granted = n && slots_holders(r, &node) ? sched_pick(queue, n, node, mono_s(), grants) : 0;
    for (int i = 0; i < granted; i++)
        grant(r, &grants[i]);
    for (int i = 0; i < node.nholders; i++)
        if (node.holders[i].yields_to)
            make_room(r, node.holders[i].id, node.holders[i].yields_to);
    free(node.holders);
    free(queue);
    free(grants);
}

/* ---- why it waits ---- */

/* The cause may pass, and the spool may hold the end of the job: the job waits, and says why. */
static void tell_refused(struct runner *r, struct job *j, const char *why)
{
    char text[sizeof j->trouble];

    snprintf(text, sizeof text, "its supervisor cannot be started and is tried again: %.190s", why);
    drain_without_slots(r, j);
    if (end_unrecorded(r, j))
        return;
    tell_trouble(r, j, "waits", text);
    do_without(r, j, why);
}

/* The owner of the job may mend its folder and has some time for that. A cancelled job waits only as long as for an
 * unreadable spool. */
static void tell_unreachable(struct runner *r, struct job *j, const char *why)
{
    char text[sizeof j->trouble];

    snprintf(text, sizeof text, JOB_SPOOL_UNREAD ": jobs/%lld cannot be used: %.180s", (long long)j->row.id, why);
    if (j->life.unreachable >= (is_to_end(j) ? LIFE_UNREADABLE_MAX : LIFE_UNREACHABLE_MAX))
        end(r, j, JOB_EV_END_FAILED, text);
    else
        tell_refused(r, j, text);
}

/* Reports since detd last heard of the job are lost with the spool. A new beginning would hide that, so the job
 * fails. */
static void tell_unreadable(struct runner *r, struct job *j, const char *why)
{
    char text[sizeof j->trouble];

    snprintf(text, sizeof text, JOB_SPOOL_LOST ": %.200s", why);
    if (j->life.unreadable < LIFE_UNREADABLE_MAX)
        tell_refused(r, j, why);
    else
        end(r, j, JOB_EV_END_FAILED, text);
}

/* No error while an earlier supervisor of the job is on its way out. A supervisor that stays may belong to another
 * database that has a job of this number too. */
static void tell_held(struct runner *r, struct job *j, const char *why)
{
    char text[sizeof j->trouble];

    snprintf(text, sizeof text, "its supervisor cannot be started: %.200s", why);
    if (is_cancelled(j) && j->life.refusals >= 2)
        j->life.not_before = mono_s() + life_backoff_s(++j->life.drains);
    drain_without_slots(r, j);
    if (j->life.refusals >= 2)
        tell_trouble(r, j, "waits", text);
    do_without(r, j, text);
}

/* ---- losing and leaving ---- */

/* A process of a job that runs as its submitter may let go of the lock, and live on. */
static void clear_scope(struct runner *r, const struct job *j)
{
    if (j->row.ticket[0])
        launcher_kill(r->launcher, j->row.ticket, NULL, NULL, NULL);
}

static void tell_mute(const struct job *j, char *ret, size_t size)
{
    int status = j->exit_status;
    char how[64];

    if (j->life.unseen)
        snprintf(how, sizeof how, "nobody saw how");
    else if (status > 128)
        snprintf(how, sizeof how, "signal %d, %s", status - 128, strsignal(status - 128));
    else
        snprintf(how, sizeof how, "status %d", status);
    snprintf(ret, size, "its supervisor ended without a message (%s); log/supervisor.log says why; %d starts are tried", how,
             LIFE_MUTE_MAX);
}

/* Its slots were given away while its killed processes did not end. */
static bool has_no_slots(const struct job *j)
{
    return j->cpu_slots == 0 && !j->row.gpus[0] && !is_cancelled(j);
}

/* No process of the job lives, and the job has not ended. A supervisor that left while no detd watched may have ended
 * the job: the next supervisor finds that in the spool. So only deaths of supervisors that this daemon has heard count
 * against the budget; a supervisor that was never heard may lack a library. A job that is not to go on gets another
 * supervisor too: it stores the spool before the job's end, which may differ from the requested end. */
static void lose(struct runner *r, struct job *j, const char *why)
{
    bool counted = j->life.known, mute = j->life.tried;
    char text[sizeof j->trouble];

    if (mute)
        tell_mute(j, text, sizeof text);
    clear_scope(r, j);
    j->life.mute += mute && !j->life.unseen;
    if (j->life.mute >= LIFE_MUTE_MAX) {
        end_mute(r, j, text);
        return;
    }
    if (is_late(j) || has_no_slots(j)) {
        snprintf(j->trouble, sizeof j->trouble, "it did not leave its slots in time, and was killed");
        give_slots_back(r, j);
        return;
    }
    if (is_cancelled(j))
        release(r, j);
    j->row.deaths += counted && !is_to_end(j);
    if (counted)
        event_add(r->events, j->row.id, "warning", "supervisor_lost", "detd-job and its ranks are gone without an end; %s",
                  is_to_end(j) ? "their reports are read to the end" : "another attempt follows");
    if (mute)
        tell_trouble(r, j, "waits", text);
    else if (counted && j->life.drains > 0)
        snprintf(j->trouble, sizeof j->trouble, "detd-job did not read the spool to its end; log/supervisor.log says why");
    else
        j->trouble[0] = '\0';
    j->life.known = j->life.tried = false;
    j->life.not_before = mono_s() + life_backoff_s(is_to_end(j) ? j->life.drains++ : mute ? ++j->life.refusals : j->row.deaths);
    job_apply(&j->row, JOB_EV_RETRY, "", now_s(), NULL);
    commit(r, j, why);
}

static void left(struct runner *r, struct job *j, const char *why)
{
    (void)why;
    clear_scope(r, j);
    release(r, j);
    if (!r->stopping)
        spent_job(r->jobs, j);
    jobs_trim(r->jobs);
    run_schedule(r);
}

/* ---- time limits ---- */

static void overtime(void *arg, int rc, int64_t id, const struct err *err)
{
    const struct runner *r = arg;

    (void)err;
    if (rc >= 0)
        event_add(r->events, id, "warning", "limit", "it still had its slots long after its run.time_limit, and was cancelled by detd");
}

/* The supervisor ends the job when its run.time_limit is over. detd counts by its own clock, and cancels a job that has
 * not ended in the time that a checkpoint may take. */
static void keep_limit(struct runner *r, struct job *j, double passed_s)
{
    const int phase = j->life.phase, save_s = 600;
    double before = j->row.held;
    struct err err;

    if (!job_is_live(j->row.state) || (phase != LIFE_STARTED && phase != LIFE_CONNECTED && phase != LIFE_STUCK))
        return;
    j->row.held += passed_s;
    j->unsaved = j->unsaved || (int64_t)before / save_s < (int64_t)j->row.held / save_s;
    if (j->row.time_limit > 0 && r->jobs->leave_s > 0 && !j->wishes && !is_cancelled(j) &&
        j->row.held > j->row.time_limit + r->jobs->leave_s + LIFE_MARGIN_S)
        jobs_command(r->jobs, j, JOB_EV_CANCEL, overtime, r, &err);
}

/* ---- killing ---- */

/* The supervisor may have left while detd tried to kill it. */
static void tell_alive(struct runner *r, struct job *j, const char *why)
{
    char text[sizeof j->trouble];

    snprintf(text, sizeof text, "its slots are held: its processes cannot be killed: %s", why);
    if (j->life.phase == LIFE_STUCK)
        tell_trouble(r, j, "stuck", text);
}

static void tell_killed(struct runner *r, struct job *j, const struct killed *k)
{
    if (k->why[0])
        tell_alive(r, j, k->why);
    else if (k->who[0])
        event_add(r->events, j->row.id, "warning", "kill", "the job neither ended nor reported in time; its processes were killed: %s",
                  k->who);
}

static void kill_all(struct runner *r, struct job *j, const char *why)
{
    (void)why;
    kill_begin(r, j, tell_killed);
}

/* The job keeps its lock, so it is not started again, and its place among the jobs that its user may run at once. Its
 * GPUs are kept, too: their memory is still taken. */
static void give_cpus_away(struct runner *r, struct job *j)
{
    tell_trouble(r, j, "stuck",
                 "its processes were killed and do not end, so its slots are given to other jobs; "
                 "a file system that does not answer may be the cause");
    j->cpu_slots = 0;
    run_schedule(r);
}

static void tell_name(struct runner *r, struct job *j, const struct killed *k)
{
    char text[sizeof j->trouble];

    if (j->life.phase != LIFE_STUCK || k->gone) /* it has left meanwhile */
        return;
    if (k->why[0]) {
        tell_alive(r, j, k->why);
        return;
    }
    if (k->dying && !j->row.gpus[0]) {
        give_cpus_away(r, j);
        return;
    }
    if (k->who[0])
        snprintf(text, sizeof text, "its slots are held: %s was killed and does not end", k->one[0] ? k->one : k->who);
    else
        snprintf(text, sizeof text, "its slots are held: a process that detd cannot see holds the lock of its folder");
    tell_trouble(r, j, "stuck", text);
}

static void name(struct runner *r, struct job *j, const char *why)
{
    (void)why;
    kill_begin(r, j, tell_name);
}

/* ---- actions ---- */

typedef void action(struct runner *r, struct job *j, const char *why);
static action *const actions[] = {
    [LIFE_COMMIT] = commit,
    [LIFE_PREPARE] = prepare,
    [LIFE_TELL_REFUSED] = tell_refused,
    [LIFE_TELL_UNREADABLE] = tell_unreadable,
    [LIFE_TELL_UNREACHABLE] = tell_unreachable,
    [LIFE_TELL_HELD] = tell_held,
    [LIFE_LOSE] = lose,
    [LIFE_RELEASE] = left,
    [LIFE_KILL] = kill_all,
    [LIFE_NAME] = name,
};

/* The job may be gone from memory when this returns. */
static void tell_life(struct runner *r, struct job *j, enum life_fact fact, const char *why)
{
    enum life_action next = life_next(&j->life, fact, mono_s());

    if (next != LIFE_NOTHING)
        actions[next](r, j, why);
}

/* ---- calls from outside ---- */

void run_connected(struct runner *r, struct job *j)
{
    if (j->life.refusals + j->life.unreadable + j->life.unreachable > 0)
        j->trouble[0] = '\0';
    j->told[0] = '\0';
    tell_life(r, j, LIFE_FACT_HELLO, "");
    if (j->life.drains > 0)
        life_within(&j->life, mono_s(), LIFE_LEAVE_S);
    else if (is_cancelled(j))
        life_within(&j->life, mono_s(), LIFE_OBEY_S);
}

void run_disconnected(struct runner *r, struct job *j)
{
    tell_life(r, j, LIFE_FACT_GONE, "");
    look(r, j);
}

/* The job's scope is empty. If its lock or connection is still held, a process outside the scope holds it, and must not
 * hold up the job: the locks are replaced. Messages that an exited supervisor has sent are read first: its connection
 * is closed later, once it counts as stuck. */
void run_scope_is_empty(struct runner *r, int64_t id, bool exited)
{
    struct job *j = jobs_find(r->jobs, id);
    bool stuck = j && j->life.phase == LIFE_STUCK && !j->life.child;

    if (!exited && !stuck)
        return;
    launch_renew_locks(r->jobs->folder, id, r->gpu_locks, j ? j->row.gpus : "");
    if (j)
        j->row.nonce[0] = '\0'; /* no supervisor speaks for it before the next start */
    if (exited)
        return;
    ingest_hang_up(j);
    look(r, j);
}

void run_adopt(struct runner *r)
{
    for (int i = 0; i < r->jobs->count; i++) {
        struct job *j = r->jobs->all[i];

        if (job_is_live(j->row.state))
            tell_life(r, j, LIFE_FACT_ADOPTED, "");
        else if (j->row.nonce[0] && !launch_lock_is_free(r->jobs->folder, j->row.id))
            tell_life(r, j, LIFE_FACT_FOUND, "");
        if (job_is_live(j->row.state) && is_cancelled(j)) /* however late its supervisor says hello */
            life_within(&j->life, mono_s(), LIFE_OBEY_S);
    }
    run_take_slots(r);
}

void run_tick(struct runner *r)
{
    double now = mono_s(), passed = r->ticked > 0 ? now - r->ticked : 0;
    int64_t id = 0;

    r->ticked = now;
    for (struct job *j; (j = jobs_after(r->jobs, id));) { /* by id: the calls below may forget jobs */
        id = j->row.id;
        j->life.silent_s = ingest_reads(j) ? j->life.silent_s + 1 : 0;
        keep_limit(r, j, passed);
        look(r, j);
        j = jobs_find(r->jobs, id);
        if (j)
            look_at_clock(r, j);
        j = jobs_find(r->jobs, id);
        if (j)
            jobs_save_again(r->jobs, j);
    }
    run_schedule(r);
}
