/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/why.c - run_why(): says in words why a job waits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/after.h"
#include "daemon/base/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/jobs/jobs.h"
#include "daemon/run/run.h"
#include "daemon/run/slots.h"
#include "daemon/store/store.h"
#include "daemon/jobs/usage.h"

/* Both jobs have the same priority, and the other one's user was granted less. */
static void tell_share(const struct job *j, const struct sched_job *view, const struct job *other, const struct sched_job *ahead, char *ret,
                       size_t size)
{
    snprintf(ret, size,
             "waits behind job %lld: in the last 7 days %s was granted %.1f %s hours, and %s %.1f (fair_share); both jobs have priority %d",
             (long long)other->row.id, other->row.user, ahead->granted / 3600, j->row.cuda ? "GPU" : "CPU slot", j->row.user,
             view->granted / 3600, j->row.priority);
}

static bool waits_behind(const struct runner *r, const struct job *j, const struct sched_node *node, char *ret, size_t size)
{
    const struct sched_job own = slots_view(r, j);

    for (int i = 0; i < r->jobs->count; i++) {
        const struct job *other = r->jobs->all[i];
        struct sched_job view = slots_view(r, other);
        int has;

        if (other->row.state != JOB_QUEUED || other->row.cuda != j->row.cuda || !sched_is_before(&view, &own) || other->row.after ||
            run_is_ownerless(r, other) || sched_gpu_need(&view) > node->gpus ||
            sched_user_limit(&view, node, &has)) /* passed over until that changes */
            continue;
        if (view.priority == own.priority && view.granted < own.granted)
            tell_share(j, &own, other, &view, ret, size);
        else
            snprintf(ret, size, "waits behind job %lld, which is queued with priority %d and waits for slots itself",
                     (long long)other->row.id, other->row.priority);
        return true;
    }
    return false;
}

int run_place(const struct runner *r, const struct job *j)
{
    const struct sched_job own = slots_view(r, j);
    int n = 0;

    for (int i = 0; i < r->jobs->count; i++) {
        const struct sched_job other = slots_view(r, r->jobs->all[i]);

        n += r->jobs->all[i]->row.state == JOB_QUEUED && sched_is_before(&other, &own);
    }
    return n;
}

static bool waits_for_other(const struct runner *r, const struct job *j, char *ret, size_t size)
{
    const struct job *other;

    if (after_look(r->jobs, j, &other) != AFTER_WAITS)
        return false;
    snprintf(ret, size, "waits till job %lld, which is %s, has %s (run.after)", (long long)j->row.after, job_state_name(other->row.state),
             j->row.after_ok ? "completed" : "ended");
    return true;
}

static bool waits_for_limit(const struct job *j, const struct sched_job *view, const struct sched_node *node, char *ret, size_t size)
{
    int has;
    const char *limit = sched_user_limit(view, node, &has);

    if (limit && limit[5] == 'g')
        snprintf(ret, size, "needs %d GPUs; %s holds %d, and a user may hold %d (%s)", sched_gpu_need(view), j->row.user, has,
                 node->user_gpus, limit);
    else if (limit)
        snprintf(ret, size, "waits till one of %s's %d running jobs has ended, the most that a user may have (%s)", j->row.user, has,
                 limit);
    return limit != NULL;
}

/* Appends "; GPU 2 is quarantined: Xid 79 ..." for each GPU that is neither free nor granted to a job. */
static void tell_gpus(const struct runner *r, char *ret, size_t size)
{
    size_t len = strlen(ret);

    for (int i = 0; i < r->gpus->count && len + 1 < size; i++) {
        const struct gpu *g = &r->gpus->all[i];
        enum gpu_state state = gpu_state(g);
        char why[GPU_REASON];

        if (state == GPU_FREE || state == GPU_GRANTED || state == GPU_DIVIDED)
            continue;
        gpu_reason(g, why, sizeof why);
        snprintf(ret + len, size - len, "; GPU %d is %s: %s", g->seen.index, gpu_state_name(state), why);
        len = strlen(ret);
    }
}

/* Appends "; job 5 makes room for it" for each such job. */
static void tell_room(const struct runner *r, const struct job *j, char *ret, size_t size)
{
    for (int i = 0; i < r->jobs->count; i++) {
        const struct job *other = r->jobs->all[i];
        size_t len = strlen(ret);

        if (slots_are_held(other) && other->yields_to == j->row.id)
            snprintf(ret + len, size - len, "; job %lld makes room for it", (long long)other->row.id);
    }
}

static bool is_kept_from_queue(const struct runner *r, const struct job *j, char *ret, size_t size)
{
    struct sched_job view = slots_view(r, j);
    struct sched_node node = slots_node(r);
    bool found;

    slots_holders(r, &node);
    found = waits_for_limit(j, &view, &node, ret, size) || waits_behind(r, j, &node, ret, size);
    free(node.holders);
    return found;
}

/* Writes which slots or GPUs the queued job needs and how many are free, then what stopped its last run. */
static void tell_need(const struct runner *r, const struct job *j, char *ret, size_t size)
{
    struct sched_job view = slots_view(r, j);
    struct sched_node node = slots_node(r);
    struct gpu_counts gpus;
    size_t len;

    gpus_count(r->gpus, &gpus);
    if (!j->row.cuda) {
        snprintf(ret, size, "needs %d CPU slots at once, %d of %d are free", sched_cpu_need(&view, &node), node.cpu_free, node.cpu_slots);
    } else if (r->gpus->trouble[0] || !r->gpus->known) {
        snprintf(ret, size, "needs %d GPUs, but no GPU is granted now: %s", sched_gpu_need(&view),
                 r->gpus->known ? r->gpus->trouble : "the GPU driver has not answered yet");
    } else {
        snprintf(ret, size, "needs %d GPUs at once, %d of %d are free", sched_gpu_need(&view), gpus.free, gpus.devices);
        tell_gpus(r, ret, size);
    }
    tell_room(r, j, ret, size);
    len = strlen(ret);
    if (j->row.reason[0])
        snprintf(ret + len, size - len, "; it was stopped last because %s", j->row.reason);
}

void run_why(struct runner *r, const struct job *j, char *ret, size_t size)
{
    char full[200];

    store_trouble(r->store, full, sizeof full);
    if (j->hidden_until)
        snprintf(ret, size, "is %s, and is shown so once that is stored%s%s", job_state_name(j->row.state), full[0] ? ": " : "", full);
    else if (j->life.phase == LIFE_COMMITTING)
        snprintf(ret, size, "has its slots and waits till that is stored%s%s", full[0] ? ": " : "", full);
    else if (j->trouble[0])
        snprintf(ret, size, "%s%s", job_is_live(j->row.state) ? "has its slots and waits: " : "", j->trouble);
    else if (j->says[0])
        snprintf(ret, size, "attempt %d: %s", j->row.attempt, j->says);
    else if (job_is_live(j->row.state) && j->yields_to)
        snprintf(ret, size, "makes room for job %lld: it writes a checkpoint and is %s", (long long)j->yields_to,
                 j->row.want == JOB_WANT_PAUSE ? "paused" : "queued again");
    else if (job_is_live(j->row.state) && j->row.backfill)
        snprintf(ret, size, "runs as backfill: it is checkpointed and queued again as soon as its slots complete those of a waiting job");
    else if (j->life.phase == LIFE_PREPARING)
        snprintf(ret, size, "has its slots; its folder is made and its supervisor is started");
    else if (j->life.phase != LIFE_IDLE)
        snprintf(ret, size, "waits till the processes of its last run have left");
    else if (run_is_ownerless(r, j))
        snprintf(ret, size,
                 "is not started: an earlier version took it to run as the daemon's user; `detctl clone %lld --as NAME` queues it for a "
                 "user",
                 (long long)j->row.id);
    else if (waits_for_other(r, j, ret, size))
        return;
    else if (r->drained[0])
        snprintf(ret, size, "no job is started, because this node is drained: %s", r->drained);
    else if (j->row.reason[0] && j->life.not_before > mono_s())
        snprintf(ret, size, "has given its slots back, and is tried again within a minute: %s", j->row.reason);
    else if (!is_kept_from_queue(r, j, ret, size))
        tell_need(r, j, ret, size);
    else if (j->row.fixed)
        snprintf(ret + strlen(ret), size - strlen(ret), "; it cannot be paused (program.on_pause), so it does not run as backfill");
}

double run_expected_wait(struct runner *r, const struct job *j)
{
    struct sched_job *queue = calloc((size_t)r->jobs->count, sizeof *queue);
    struct sched_node node = slots_node(r);
    double now = mono_s(), at = INFINITY;
    int n = 0;

    for (int i = 0; queue && i < r->jobs->count; i++) {
        const struct job *other = r->jobs->all[i];

        if (other->row.state == JOB_QUEUED && !other->row.after && other->life.phase == LIFE_IDLE && !run_is_ownerless(r, other))
            queue[n++] = slots_view(r, other);
    }
    if (queue && slots_holders(r, &node) && j->row.state == JOB_QUEUED && !r->drained[0]) {
        for (int i = 0; i < node.nholders; i++)
            node.holders[i].ends = usage_expected_end(jobs_find(r->jobs, node.holders[i].id), now);
        at = sched_expected(queue, n, &node, j->row.id, now);
    }
    free(node.holders);
    free(queue);
    return at - now;
}
