#include "daemon/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "daemon/daemon.h"
#include "daemon/gpu_node.h"
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
    const char *at = strstr(j->row.gpus, g->seen.uuid);
    size_t n = strlen(g->seen.uuid);

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
    struct gpu_counts counts;

    gpus_count(&d->gpus, &counts);
    return counts.free;
}

static struct sched_job sched_view(const struct job *j)
{
    return (struct sched_job){ .id = j->row.id,
                               .priority = j->row.priority,
                               .cuda = j->row.cuda,
                               .ranks = j->row.ranks,
                               .ranks_per_gpu = j->row.ranks_per_gpu,
                               .threads = j->row.threads,
                               .not_before = j->not_before };
}

static struct sched_node node_view(const struct daemon *d)
{
    struct gpu_counts gpus;

    gpus_count(&d->gpus, &gpus);
    return (struct sched_node){ d->cpu_slots, run_cpu_free(d), gpus.usable, gpus.free };
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

static int take_some(struct daemon *d, struct job *j, int count, bool instances)
{
    for (int i = 0; i < d->gpus.count && count > 0; i++) {
        struct gpu *g = &d->gpus.all[i];
        size_t len = strlen(j->row.gpus);

        if (gpu_state(g) != GPU_FREE || (strncmp(g->seen.uuid, "MIG-", 4) == 0) != instances)
            continue;
        g->job = j->row.id;
        snprintf(j->row.gpus + len, sizeof j->row.gpus - len, "%s%s", len ? "," : "", g->seen.uuid);
        count--;
    }
    return count;
}

/* Whole GPUs first: ranks keep step, and the slowest device sets the pace of all. */
static void take_gpus(struct daemon *d, struct job *j, int count)
{
    j->row.gpus[0] = '\0';
    take_some(d, j, take_some(d, j, count, false), true);
}

static void release(struct daemon *d, struct job *j)
{
    j->cpu_slots = 0;
    j->leave_before = 0;
    j->to_launch = false;
    if (!j->row.gpus[0])
        return;
    j->row.gpus[0] = '\0';
    gpu_node_job_left(d->gpu_node, j->row.id);
    job_changed(d, j);
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

static double backoff_s(int tries)
{
    double s = 1;

    for (int i = 1; i < tries && s < BACKOFF_MAX_S; i++)
        s *= 2;
    return tries == 0 ? 0 : s < BACKOFF_MAX_S ? s : BACKOFF_MAX_S;
}

/* Nothing of it is to run any more, and its end is still to be written. */
static bool is_to_end(const struct job *j)
{
    return j->row.want == JOB_WANT_CANCEL || j->row.deaths > j->row.restarts;
}

static void tell_end(const struct job *j, char *ret, size_t size)
{
    ret[0] = '\0';
    if (j->row.want != JOB_WANT_CANCEL)
        snprintf(ret, size, "the supervisor was lost %d times in a row without a newer checkpoint", j->row.deaths);
}

/* No supervisor of it ever came so far as to have a spool: there is nothing to read, and it ends here. */
static bool end_unrecorded(struct daemon *d, struct job *j)
{
    char why[120];

    if (!is_to_end(j) || launch_has_spool(d->jobs_dir, j->row.id))
        return false;
    tell_end(j, why, sizeof why);
    job_apply(&j->row, j->row.want == JOB_WANT_CANCEL ? JOB_EV_END_CANCELLED : JOB_EV_END_FAILED, why, now_s(), NULL);
    j->phase[0] = '\0';
    release(d, j);
    store_save(d->store, &j->row, NULL, NULL);
    daemon_event(d, j->row.id, why[0] ? "error" : "info", "end", "%s%s%s", job_state_name(j->row.state), why[0] ? ": " : "", why);
    job_changed(d, j);
    return true;
}

static void on_supervisor_exit(void *arg, int64_t id)
{
    struct daemon *d = arg;
    struct job *j = jobs_find(d, id);

    if (j && !j->sup)
        run_supervisor_gone(d, j);
}

static void tell_trouble(struct daemon *d, struct job *j, const char *why)
{
    if (strncmp(j->trouble, why, sizeof j->trouble - 1) != 0)
        daemon_event(d, j->row.id, "warning", "waits", "its supervisor cannot be started and is tried again: %s", why);
    snprintf(j->trouble, sizeof j->trouble, "%.255s", why);
}

/* Whatever it is, it may pass, and the spool may hold the end of the job: it waits, and says why. */
static void start_failed(struct daemon *d, struct job *j, const char *why)
{
    if (end_unrecorded(d, j)) {
        run_schedule(d);
        return;
    }
    tell_trouble(d, j, why);
    j->not_before = now_s() + backoff_s(++j->failed_starts);
}

/* No error while an earlier supervisor of the job is on its way out. One that stays may be of another database, whose job has this number too. */
static void lock_held(struct daemon *d, struct job *j)
{
    char why[120];

    j->not_before = now_s() + 1;
    if (++j->failed_starts < 2)
        return;
    snprintf(why, sizeof why, "processes of session %ld hold the lock of its folder, jobs/%lld", launch_session(d->jobs_dir, j->row.id),
             (long long)j->row.id);
    tell_trouble(d, j, why);
}

static void start_done(struct job *j)
{
    j->to_launch = false;
    j->known = true;
    j->failed_starts = 0;
    if (j->drains < 2)
        j->trouble[0] = '\0';
}

static void launch_after(uv_work_t *req, int status)
{
    struct launching *l = req->data;
    struct daemon *d = l->d;
    struct job *j = jobs_find(d, l->rq.job);
    bool wanted = j && j->to_launch && !d->stopping, held = l->lock_fd == -EWOULDBLOCK;
    int rc = l->lock_fd;

    (void)status;
    if (j)
        j->launching = false;
    if (rc >= 0 && wanted)
        rc = launch_start(d->loop, &l->rq, l->lock_fd, on_supervisor_exit, d, &l->err);
    else if (rc >= 0)
        uv_fs_close(d->loop, &(uv_fs_t){ 0 }, rc, NULL);
    if (wanted && held)
        lock_held(d, j);
    else if (wanted && rc < 0)
        start_failed(d, j, l->err.msg);
    else if (wanted)
        start_done(j);
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
                                     .store_id = store_id(d->store),
                                     .threads = j->row.threads,
                                     .tier = j->row.tier,
                                     .jobs_dir = d->jobs_dir };
    if (is_to_end(j)) {
        l->rq.drain = j->row.want == JOB_WANT_CANCEL ? JOB_CANCELLED : JOB_FAILED;
        tell_end(j, l->rq.reason, sizeof l->rq.reason);
    }
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
    if (j && rc == 0 && j->to_launch && !c->d->stopping && now_s() >= j->not_before) /* else the clock does it */
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
    j->row.attempt += !is_to_end(j);
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
    j->known = j->off_gpu = false;
    j->drains = 0;
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
    bool cuda = false;
    int n = 0, granted;

    if (d->stopping || d->jobs.count == 0)
        return;
    queue = calloc((size_t)d->jobs.count, sizeof *queue);
    grants = calloc((size_t)d->jobs.count, sizeof *grants);
    for (int i = 0; queue && grants && i < d->jobs.count; i++) {
        struct job *j = d->jobs.all[i];

        if (may_start(d, j, now)) {
            queue[n++] = sched_view(j);
            cuda = cuda || j->row.cuda;
        }
    }
    if (cuda)
        gpu_node_look_at_locks(d->gpu_node);
    granted = n ? sched_pick(queue, n, node_view(d), now, grants) : 0;
    for (int i = 0; i < granted; i++)
        grant(d, &grants[i]);
    free(queue);
    free(grants);
}

/* ---- losing ---- */

/* No process of the job lives and it has not ended. A supervisor that left while no detd watched may have ended the job: the next one finds
 * that in the spool; so only deaths that this daemon saw count against the budget. A job that is not to go on gets a supervisor too: what its
 * spool holds is stored before its end, which may be another one than was asked for. */
static void lost(struct daemon *d, struct job *j)
{
    bool counted = j->known;

    j->row.deaths += counted && !is_to_end(j);
    if (end_unrecorded(d, j)) {
        run_schedule(d);
        return;
    }
    if (counted)
        daemon_event(d, j->row.id, "warning", "supervisor_lost", "detd-job and its ranks are gone without an end; %s",
                     is_to_end(j) ? "their reports are read to the end" : "another attempt follows");
    if (counted && j->drains > 0)
        snprintf(j->trouble, sizeof j->trouble, "detd-job did not come to the end of the spool; log/supervisor.log says why");
    j->known = false;
    j->not_before = now_s() + backoff_s(is_to_end(j) ? j->drains++ : j->row.deaths);
    if (is_to_end(j))
        j->leave_before = j->not_before + LEAVE_S;
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

static bool waits_behind(const struct daemon *d, const struct job *j, const struct sched_node *node, char *ret, size_t size)
{
    for (int i = 0; i < d->jobs.count; i++) {
        const struct job *other = d->jobs.all[i];
        struct sched_job view = sched_view(other);
        bool ahead = other->row.priority > j->row.priority || (other->row.priority == j->row.priority && other->row.id < j->row.id);

        if (sched_gpu_need(&view) > node->gpus) /* passed over till more are healthy */
            continue;
        if (other != j && other->row.state == JOB_QUEUED && other->row.cuda == j->row.cuda && ahead) {
            snprintf(ret, size, "waits behind job %lld, which is queued with priority %d and waits for slots itself",
                     (long long)other->row.id, other->row.priority);
            return true;
        }
    }
    return false;
}

/* "; GPU 2 is quarantined: Xid 79 ..." of each that is neither free nor a job's. */
static void tell_gpus(const struct daemon *d, char *ret, size_t size)
{
    size_t len = strlen(ret);

    for (int i = 0; i < d->gpus.count && len + 1 < size; i++) {
        const struct gpu *g = &d->gpus.all[i];
        enum gpu_state state = gpu_state(g);
        char why[GPU_REASON];

        if (state == GPU_FREE || state == GPU_GRANTED || state == GPU_DIVIDED)
            continue;
        gpu_reason(g, why, sizeof why);
        snprintf(ret + len, size - len, "; GPU %d is %s: %s", g->seen.index, gpu_state_name(state), why);
        len = strlen(ret);
    }
}

void run_why(struct daemon *d, const struct job *j, char *ret, unsigned long size)
{
    struct sched_job view = sched_view(j);
    struct sched_node node = node_view(d);

    struct gpu_counts gpus;

    gpus_count(&d->gpus, &gpus);
    if (j->row.state != JOB_QUEUED) {
        snprintf(ret, size, "has its slots and waits: %s", j->trouble);
        return;
    }
    if (waits_behind(d, j, &node, ret, size))
        return;
    if (!j->row.cuda) {
        snprintf(ret, size, "needs %d CPU slots at once, %d of %d are free", sched_cpu_need(&view, &node), node.cpu_free, node.cpu_slots);
    } else if (d->gpus.trouble[0] || !d->gpus.known) {
        snprintf(ret, size, "needs %d GPUs, and none is granted now: %s", sched_gpu_need(&view),
                 d->gpus.known ? d->gpus.trouble : "the GPU driver has not answered yet");
    } else {
        snprintf(ret, size, "needs %d GPUs at once, %d of %d are free", sched_gpu_need(&view), gpus.free, gpus.devices);
        tell_gpus(d, ret, size);
    }
    if (j->row.reason[0]) {
        size_t len = strlen(ret);

        snprintf(ret + len, size - len, "; it was stopped last because %s", j->row.reason);
    }
}
