#include "daemon/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/daemon.h"
#include "daemon/ingest.h"
#include "daemon/launch.h"
#include "daemon/sched.h"
#include "proto/err.h"

enum { BACKOFF_MAX_S = 60, LEAVE_S = 20 };

/* ---- slots ---- */

static bool holds_slots(const struct job *j)
{
    return job_is_live(j->row.state) || j->sup;
}

static bool gpu_is_of(const struct gpu *g, const struct job *j)
{
    const char *at = g->uuid[0] ? strstr(j->row.gpus, g->uuid) : NULL;
    size_t n = strlen(g->uuid);

    return at && (at == j->row.gpus || at[-1] == ',') && (at[n] == '\0' || at[n] == ',');
}

int run_cpu_free(const struct daemon *d)
{
    int free_slots = d->cpu_slots;

    for (int i = 0; i < d->jobs.count; i++)
        free_slots -= d->jobs.all[i]->cpu_slots;
    return free_slots < 0 ? 0 : free_slots;
}

int run_gpus_free(const struct daemon *d)
{
    int n = 0;

    for (int i = 0; i < d->gpus.count; i++)
        n += d->gpus.all[i].job == 0;
    return n;
}

static struct sched_job sched_view(const struct job *j)
{
    return (struct sched_job){ j->row.id, j->row.priority, j->row.cuda, j->row.ranks, j->row.threads, j->not_before };
}

static struct sched_node node_view(const struct daemon *d)
{
    return (struct sched_node){ d->cpu_slots, run_cpu_free(d), d->gpus.count, run_gpus_free(d) };
}

void run_take_slots(struct daemon *d)
{
    struct sched_node node = node_view(d);

    for (int i = 0; i < d->jobs.count; i++) {
        struct job *j = d->jobs.all[i];
        struct sched_job view = sched_view(j);

        if (!holds_slots(j))
            continue;
        j->cpu_slots = sched_cpu_need(&view, &node);
        for (int g = 0; g < d->gpus.count; g++)
            if (gpu_is_of(&d->gpus.all[g], j))
                d->gpus.all[g].job = j->row.id;
    }
}

static void take_gpus(struct daemon *d, struct job *j, int count)
{
    size_t len = 0;

    for (int g = 0; g < d->gpus.count && count > 0; g++)
        if (d->gpus.all[g].job == 0) {
            d->gpus.all[g].job = j->row.id;
            len += (size_t)snprintf(j->row.gpus + len, sizeof j->row.gpus - len, "%s%s", len ? "," : "", d->gpus.all[g].uuid);
            count--;
        }
}

static void release(struct daemon *d, struct job *j)
{
    j->cpu_slots = 0;
    j->leave_before = 0;
    j->to_launch = false;
    j->row.gpus[0] = '\0';
    for (int g = 0; g < d->gpus.count; g++)
        if (d->gpus.all[g].job == j->row.id)
            d->gpus.all[g].job = 0;
}

/* ---- starting ---- */

struct launching {
    uv_work_t req;
    struct daemon *d;
    struct launch_request rq;
    int lock_fd;
    struct err err;
};

static void launch_work(uv_work_t *req)
{
    struct launching *l = req->data;

    l->lock_fd = launch_prepare(l->d->store, &l->rq, &l->err);
}

static void give_up(struct daemon *d, struct job *j, const char *why)
{
    if (job_apply(&j->row, JOB_EV_END_FAILED, why, now_s(), NULL) < 0)
        return;
    j->phase[0] = '\0';
    release(d, j);
    store_save(d->store, &j->row, NULL, NULL);
    daemon_event(d, j->row.id, "error", "end", "%s: %s", job_state_name(j->row.state), why);
    job_changed(d, j);
}

static void on_supervisor_exit(void *arg, int64_t id)
{
    struct daemon *d = arg;
    struct job *j = jobs_find(d, id);

    if (j && !j->sup)
        run_supervisor_gone(d, j);
}

/* A lock that is held is not an error: an earlier supervisor of the job is on its way out. A full disk may get room. */
static void launch_after(uv_work_t *req, int status)
{
    struct launching *l = req->data;
    struct daemon *d = l->d;
    struct job *j = jobs_find(d, l->rq.job);
    int rc = l->lock_fd;

    (void)status;
    if (j)
        j->launching = false;
    if (rc >= 0 && j && j->to_launch && !d->stopping)
        rc = launch_start(d->loop, &l->rq, l->lock_fd, on_supervisor_exit, d, &l->err);
    else if (rc >= 0)
        uv_fs_close(d->loop, &(uv_fs_t){ 0 }, rc, NULL);
    if (j && j->to_launch && rc >= 0) {
        j->to_launch = false;
        j->known = true;
    } else if (j && (rc == -EWOULDBLOCK || rc == -ENOSPC || rc == -EAGAIN)) {
        j->not_before = now_s() + 1;
    } else if (j && rc < 0) {
        give_up(d, j, l->err.msg);
    }
    free(l);
}

static void launch(struct daemon *d, struct job *j)
{
    struct launching *l = calloc(1, sizeof *l);

    j->launching = true;
    if (!l) {
        j->launching = false; /* the next tick tries again */
        return;
    }
    l->req.data = l;
    l->d = d;
    l->rq = (struct launch_request){ .job = j->row.id,
                                     .attempt = j->row.attempt,
                                     .last_seq = j->row.last_seq,
                                     .threads = j->row.threads,
                                     .tier = j->row.tier,
                                     .jobs_dir = d->jobs_dir };
    memcpy(l->rq.nonce, j->row.nonce, sizeof l->rq.nonce);
    memcpy(l->rq.gpus, j->row.gpus, sizeof l->rq.gpus);
    if (uv_queue_work(d->loop, &l->req, launch_work, launch_after) < 0) {
        j->launching = false;
        free(l);
    }
}

struct commit {
    struct daemon *d;
    int64_t id;
};

static void start_committed(void *arg, int rc, int64_t value, const struct err *err)
{
    struct commit *c = arg;
    struct job *j = jobs_find(c->d, c->id);

    (void)value;
    (void)err;
    if (j)
        j->launching = false;
    if (j && rc == 0 && j->to_launch && !c->d->stopping)
        launch(c->d, j);
    free(c);
}

static int new_nonce(char *ret)
{
    unsigned char bytes[JOB_NONCE_LEN / 2];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -errno;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* Attempt, nonce and slots are durable before the fork: whatever dies in between, the next detd knows which supervisor may speak for the job. */
static void commit_start(struct daemon *d, struct job *j)
{
    struct commit *c = malloc(sizeof *c);

    if (!c || new_nonce(j->row.nonce) < 0) {
        free(c);
        return;
    }
    *c = (struct commit){ d, j->row.id };
    j->row.attempt++;
    j->row.cpu_before = j->row.cpu_seconds;
    j->to_launch = j->launching = true;
    snprintf(j->phase, sizeof j->phase, "starting");
    job_changed(d, j);
    store_save(d->store, &j->row, start_committed, c);
}

static void grant(struct daemon *d, const struct sched_grant *g)
{
    struct job *j = jobs_find(d, g->id);

    if (!j || job_apply(&j->row, JOB_EV_GRANT, "", now_s(), NULL) < 0)
        return;
    j->row.threads = g->threads;
    j->row.want = JOB_WANT_RUN;
    j->cpu_slots = g->cpu_slots;
    j->leave_before = 0;
    j->known = false;
    take_gpus(d, j, g->gpus);
    daemon_event(d, j->row.id, "info", "state", "starting");
    commit_start(d, j);
}

/* The supervisor of an earlier run may still be on its way out: until it left, or came back for its last ack, the job keeps its nonce. */
static bool may_start(struct daemon *d, struct job *j, double now)
{
    if (j->row.state != JOB_QUEUED || j->sup || j->launching)
        return false;
    if (j->row.attempt == 0 || launch_lock_is_free(d->jobs_dir, j->row.id))
        return true;
    if (j->leave_before == 0)
        j->leave_before = now + LEAVE_S;
    return false;
}

void run_schedule(struct daemon *d)
{
    struct sched_job *queue;
    struct sched_grant *grants;
    double now = now_s();
    int n = 0, granted;

    if (d->stopping || d->jobs.count == 0)
        return;
    queue = calloc((size_t)d->jobs.count, sizeof *queue);
    grants = calloc((size_t)d->jobs.count, sizeof *grants);
    for (int i = 0; queue && grants && i < d->jobs.count; i++) {
        struct job *j = d->jobs.all[i];

        if (may_start(d, j, now))
            queue[n++] = sched_view(j);
    }
    granted = n ? sched_pick(queue, n, node_view(d), now, grants) : 0;
    for (int i = 0; i < granted; i++)
        grant(d, &grants[i]);
    free(queue);
    free(grants);
}

/* ---- losing ---- */

static double backoff_s(int deaths)
{
    double s = 1;

    for (int i = 1; i < deaths && s < BACKOFF_MAX_S; i++)
        s *= 2;
    return deaths == 0 ? 0 : s < BACKOFF_MAX_S ? s : BACKOFF_MAX_S;
}

/* No process of the job lives and it has not ended. A supervisor that left while no detd watched may have ended the job: the next one finds
 * that in the spool; so only deaths that this daemon saw count against the budget. */
static void lost(struct daemon *d, struct job *j)
{
    bool counted = j->known;

    if (counted && j->row.want == JOB_WANT_CANCEL) {
        job_apply(&j->row, JOB_EV_END_CANCELLED, "", now_s(), NULL);
        release(d, j);
        store_save(d->store, &j->row, NULL, NULL);
        daemon_event(d, j->row.id, "info", "end", "cancelled");
        job_changed(d, j);
        run_schedule(d);
        return;
    }
    j->row.deaths += counted;
    if (j->row.deaths > j->row.restarts) {
        char why[120];

        snprintf(why, sizeof why, "the supervisor was lost %d times in a row without a newer checkpoint", j->row.deaths);
        give_up(d, j, why);
        run_schedule(d);
        return;
    }
    if (counted)
        daemon_event(d, j->row.id, "warning", "supervisor_lost", "detd-job and its ranks are gone without an end; another attempt follows");
    j->known = false;
    j->not_before = now_s() + backoff_s(j->row.deaths);
    job_apply(&j->row, JOB_EV_RETRY, "", now_s(), NULL);
    commit_start(d, j);
}

void run_supervisor_gone(struct daemon *d, struct job *j)
{
    if (job_is_live(j->row.state)) {
        if (!j->sup && !j->to_launch && !j->launching && launch_lock_is_free(d->jobs_dir, j->row.id))
            lost(d, j);
        return;
    }
    release(d, j);
    jobs_trim(d);
    run_schedule(d);
}

static void kill_session(struct daemon *d, struct job *j, double now)
{
    struct err err;

    j->leave_before = now + LEAVE_S;
    if (launch_kill(d->jobs_dir, j->row.id, &err) < 0)
        daemon_event(d, j->row.id, "warning", "kill", "%s", err.msg);
    else
        daemon_event(d, j->row.id, "warning", "kill", "the job did not leave in time; its processes were killed");
}

static void tick_job(struct daemon *d, struct job *j, double now)
{
    if (j->leave_before != 0 && now > j->leave_before && !j->to_launch && !launch_lock_is_free(d->jobs_dir, j->row.id))
        kill_session(d, j, now);
    if (!job_is_live(j->row.state) || j->sup || j->launching || now < j->not_before)
        return;
    if (j->to_launch)
        launch(d, j);
    else
        run_supervisor_gone(d, j);
}

void run_tick(struct daemon *d)
{
    double now = now_s();

    for (int i = 0; i < d->jobs.count; i++)
        if (!job_is_done(d->jobs.all[i]->row.state) || d->jobs.all[i]->sup)
            tick_job(d, d->jobs.all[i], now);
    run_schedule(d);
}

void run_why(struct daemon *d, const struct job *j, char *ret, unsigned long size)
{
    struct sched_job view = sched_view(j);
    struct sched_node node = node_view(d);
    int need = j->row.cuda ? j->row.ranks : sched_cpu_need(&view, &node);
    int have = j->row.cuda ? node.gpus_free : node.cpu_free;
    const char *what = j->row.cuda ? "GPUs" : "CPU slots";

    for (int i = 0; i < d->jobs.count; i++) {
        const struct job *other = d->jobs.all[i];
        bool ahead = other->row.priority > j->row.priority || (other->row.priority == j->row.priority && other->row.id < j->row.id);

        if (other != j && other->row.state == JOB_QUEUED && other->row.cuda == j->row.cuda && ahead) {
            snprintf(ret, size, "waits behind job %lld, which is queued with priority %d and waits for slots itself",
                     (long long)other->row.id, other->row.priority);
            return;
        }
    }
    snprintf(ret, size, "needs %d %s at once, %d of %d are free", need, what, have, j->row.cuda ? node.gpus : node.cpu_slots);
}
