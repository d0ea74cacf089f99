#include "daemon/run/gpu_node.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/jobs/event.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/gpu_child.h"
#include "daemon/jobs/jobs.h"
#include "daemon/launch/launch.h"
#include "proto/err.h"
#include "proto/host/gpulock.h"

enum { ASKED_S = 60, WANTED_EVERY_S = 10, CHECK_EVERY_S = 1, RARELY_EVERY_S = 300, RETRY_FIRST_S = 10, RETRY_MAX_S = 300 };

struct waiter {
    struct waiter *next;
    void (*fn)(void *arg);
    void *arg;
};

/* Stored facts about a GPU. They are kept when a look does not show it, as it may come back. */
struct stored {
    struct stored *next;
    struct store_gpu gpu;
};

struct gpu_node {
    struct gpu_node_config c;
    struct gpu_child *child;
    struct waiter *waiters;
    struct stored *stored;
    bool shown[GPU_MAX]; /* by the look under way */
    double looked, asked, retry_at, retry_s;
    bool overflow, stopped;
};

/* ---- stored facts ---- */

static void load_one(void *arg, const struct store_gpu *gpu)
{
    struct gpu_node *n = arg;
    struct stored *s = malloc(sizeof *s);

    if (!s)
        return;
    *s = (struct stored){ n->stored, *gpu };
    n->stored = s;
}

static struct stored *find_stored(const struct gpu_node *n, const char *uuid)
{
    struct stored *s = n->stored;

    while (s && strcmp(s->gpu.uuid, uuid) != 0)
        s = s->next;
    return s;
}

static void save(struct gpu_node *n, const struct gpu *g, store_done *done, void *arg)
{
    struct stored *known = find_stored(n, g->seen.uuid);
    struct store_gpu row = { .memory_bytes = g->seen.memory_bytes, .ecc_errors = g->seen.ecc_errors, .quarantined = g->quarantined };

    snprintf(row.uuid, sizeof row.uuid, "%s", g->seen.uuid);
    snprintf(row.name, sizeof row.name, "%s", g->seen.name);
    snprintf(row.quarantine, sizeof row.quarantine, "%s", g->quarantine);
    if (known)
        known->gpu = row;
    else
        load_one(n, &row);
    store_gpu(n->c.store, &row, now_s(), done, arg);
}

static void recall(struct gpu_node *n, struct gpu *g)
{
    const struct stored *s = find_stored(n, g->seen.uuid);

    if (!s)
        return;
    snprintf(g->quarantine, sizeof g->quarantine, "%s", s->gpu.quarantine);
    g->quarantined = s->gpu.quarantined;
    g->seen.ecc_errors = s->gpu.ecc_errors; /* growth since then is noticed by gpu_take() */
}

/* ---- effects of a change ---- */

/* A job on a quarantined GPU writes a checkpoint, or loses its work since the last one, and is queued for another GPU.
 * A job that its owner has paused is already writing one, and now gets a deadline. A supervisor that is not connected
 * is told when it connects. */
static void move_job(struct gpu_node *n, const struct gpu *g)
{
    struct job *j = g->job ? jobs_find(n->c.jobs, g->job) : NULL;

    bool pauses = j && j->row.state == JOB_STOPPING && j->row.want != JOB_WANT_CANCEL;

    if (!j || j->off_gpu || (j->row.state != JOB_STARTING && j->row.state != JOB_RUNNING && !pauses))
        return;
    j->off_gpu = true;
    event_add(n->c.events, j->row.id, "warning", "gpu", "leaves GPU %s, which is quarantined, and is %s", g->seen.uuid,
              j->row.want == JOB_WANT_PAUSE ? "paused" : "queued again");
    jobs_send_away(n->c.jobs, j);
}

static void tell_quarantine(struct gpu_node *n, struct gpu *g)
{
    g->quarantined = now_s(); /* wall-clock time, since it is stored; pauses are measured with the monotonic clock */
    save(n, g, NULL, NULL);
    event_add(n->c.events, g->job, "error", "gpu_quarantined", "GPU %d (%s, %s) is quarantined: %s", g->seen.index, g->seen.uuid,
              g->seen.name, g->quarantine);
}

static void tell_foreign(struct gpu_node *n, const struct gpu *g, bool before)
{
    if (g->foreign[0] && !before)
        event_add(n->c.events, g->job, "warning", "gpu_foreign", "GPU %d (%s) is %s", g->seen.index, g->seen.uuid, g->foreign);
    else if (!g->foreign[0] && before)
        event_add(n->c.events, g->job, "info", "gpu_foreign", "GPU %d (%s) is no longer in foreign use", g->seen.index, g->seen.uuid);
}

/* ---- a look ---- */

static void on_seen(void *arg, const struct gpu_seen *seen)
{
    struct gpu_node *n = arg;
    struct gpus *all = n->c.gpus;
    struct gpu *g = gpus_find(all, seen->uuid);
    bool fresh = !g, foreign, sick;
    int64_t job;

    if (fresh)
        g = gpus_add(all, seen);
    if (!g) {
        if (!n->overflow)
            event_add(n->c.events, 0, "warning", "gpus", "the node has more than %d GPUs; the others are not used", GPU_MAX);
        n->overflow = true;
        return;
    }
    if (fresh)
        recall(n, g);
    n->shown[g - all->all] = true;
    foreign = g->foreign[0] != '\0';
    sick = g->quarantine[0] != '\0';
    job = g->job ? g->job : g->left_by;
    gpu_take(g, seen, job ? launch_session(n->c.jobs->folder, job) : 0, mono_s());
    if (!sick && g->quarantine[0])
        tell_quarantine(n, g);
    else if (fresh)
        save(n, g, NULL, NULL);
    tell_foreign(n, g, foreign);
}

static void look_for_missing(struct gpu_node *n)
{
    struct gpus *all = n->c.gpus;

    for (int i = all->count - 1; i >= 0; i--) {
        struct gpu *g = &all->all[i];
        bool sick = g->quarantine[0] != '\0';

        if (n->shown[i])
            continue;
        if (gpu_vanish(g, mono_s()))
            gpus_remove(all, g);
        else if (!sick)
            tell_quarantine(n, g);
    }
}

static void call_waiters(struct gpu_node *n)
{
    struct waiter *w = n->waiters;

    n->waiters = NULL;
    while (w) {
        struct waiter *next = w->next;

        w->fn(w->arg);
        free(w);
        w = next;
    }
}

static void look_ended(struct gpu_node *n)
{
    struct gpus *all = n->c.gpus;

    all->known = true;
    n->c.looked(n->c.arg);
    for (int i = 0; i < all->count; i++)
        if (all->all[i].quarantine[0])
            move_job(n, &all->all[i]);
    call_waiters(n);
    n->c.ready(n->c.arg);
}

static void on_done(void *arg)
{
    struct gpu_node *n = arg;
    struct gpus *all = n->c.gpus;

    look_for_missing(n);
    n->looked = mono_s();
    n->retry_s = 0;
    all->absent[0] = '\0';
    if (all->trouble[0])
        event_add(n->c.events, 0, "info", "gpus", "the GPU driver answers again");
    all->trouble[0] = '\0';
    look_ended(n);
}

/* A machine without a driver has no GPUs, and that is no error. A driver that answered before and is absent now is an
 * error. */
static void on_failed(void *arg, bool absent, const char *why)
{
    struct gpu_node *n = arg;
    struct gpus *all = n->c.gpus;

    n->looked = mono_s();
    if (absent && all->count == 0) {
        snprintf(all->absent, sizeof all->absent, "%s", why);
        all->trouble[0] = '\0';
    } else {
        n->retry_s = n->retry_s == 0 ? RETRY_FIRST_S : 2 * n->retry_s < RETRY_MAX_S ? 2 * n->retry_s : RETRY_MAX_S;
        n->retry_at = n->looked + n->retry_s;
        if (strcmp(all->trouble, why) != 0)
            event_add(n->c.events, 0, "error", "gpus", "%s; no GPU is granted till it answers", why);
        snprintf(all->trouble, sizeof all->trouble, "%s", why);
    }
    look_ended(n);
}

static void on_xid(void *arg, const char *uuid, int64_t number)
{
    struct gpu_node *n = arg;
    struct gpu *g = gpus_find(n->c.gpus, uuid);
    bool sick;

    if (!g)
        return;
    sick = g->quarantine[0] != '\0';
    event_add(n->c.events, g->job, "warning", "gpu_xid", "GPU %d (%s) reports Xid %lld", g->seen.index, uuid, (long long)number);
    if (!gpu_xid(g, number, mono_s()))
        return;
    if (!sick)
        tell_quarantine(n, g);
    move_job(n, g);
}

static void look(struct gpu_node *n)
{
    if (!n->child || gpu_child_is_looking(n->child))
        return;
    memset(n->shown, 0, sizeof n->shown);
    gpu_child_look(n->child);
}

/* ---- times of looks ---- */

static bool jobs_need_gpus(const struct jobs *jobs)
{
    for (int i = 0; i < jobs->count; i++) {
        const struct job *j = jobs->all[i];

        if (j->row.cuda && (job_is_live(j->row.state) || j->row.state == JOB_QUEUED))
            return true;
    }
    return false;
}

static bool is_checking(const struct gpus *all)
{
    for (int i = 0; i < all->count; i++)
        if (all->all[i].left_by)
            return true;
    return false;
}

static double pause_s(const struct gpu_node *n, double now)
{
    if (is_checking(n->c.gpus))
        return CHECK_EVERY_S;
    return now - n->asked < ASKED_S || jobs_need_gpus(n->c.jobs) ? WANTED_EVERY_S : RARELY_EVERY_S;
}

void gpu_node_tick(struct gpu_node *n)
{
    const struct gpus *all = n->c.gpus;
    double now = mono_s(), pause = pause_s(n, now);

    if (n->stopped)
        return;
    if (!all->known || (all->trouble[0] ? now >= n->retry_at : now - n->looked >= pause))
        look(n);
    else if (pause == RARELY_EVERY_S)
        gpu_child_rest(n->child);
}

void gpu_node_await(struct gpu_node *n, double age_s, void (*fn)(void *arg), void *arg)
{
    const struct gpus *all = n->c.gpus;
    double now = mono_s();
    struct waiter *w = malloc(sizeof *w), **end = &n->waiters;

    n->asked = now;
    if (!w || n->stopped || (all->known && (now - n->looked <= age_s || (all->trouble[0] && now < n->retry_at)))) {
        free(w);
        fn(arg);
        return;
    }
    *w = (struct waiter){ NULL, fn, arg };
    while (*end)
        end = &(*end)->next;
    *end = w;
    look(n);
}

void gpu_node_look_at_locks(struct gpu_node *n)
{
    struct gpus *all = n->c.gpus;

    for (int i = 0; i < all->count; i++) {
        struct gpu *g = &all->all[i];
        bool mine = g->job || g->left_by; /* the job's own detd-job may not have ended yet */
        struct err why;

        g->locked[0] = '\0';
        if (!mine && !g->seen.divided && gpulock_is_held(n->c.locks, g->seen.uuid, &why))
            snprintf(g->locked, sizeof g->locked, "%.239s", why.msg);
    }
}

void gpu_node_job_left(struct gpu_node *n, int64_t job)
{
    struct gpus *all = n->c.gpus;
    bool any = false;

    for (int i = 0; i < all->count; i++)
        if (all->all[i].job == job) {
            gpu_leave(&all->all[i], mono_s());
            any = true;
        }
    if (any && !n->stopped && !all->trouble[0])
        look(n);
}

int gpu_node_release(struct gpu_node *n, const char *uuid, store_done *done, void *arg, struct err *err)
{
    struct gpu *g = gpus_find(n->c.gpus, uuid);

    if (!g)
        return err_field(err, ERR_NOTFOUND, "uuid", "no GPU '%.60s' on this node", uuid);
    if (!g->quarantine[0])
        return err_field(err, ERR_STATE, "uuid", "GPU %s is not quarantined", uuid);
    event_add(n->c.events, 0, "info", "gpu_released", "GPU %d (%s) is released from quarantine; the reason for it was: %s", g->seen.index,
              uuid, g->quarantine);
    g->quarantine[0] = '\0';
    g->quarantined = 0;
    save(n, g, done, arg);
    look(n);
    return 0;
}

/* ---- life ---- */

int gpu_node_open(const struct gpu_node_config *config, struct gpu_node **ret, struct err *err)
{
    struct gpu_node *n = calloc(1, sizeof *n);
    struct gpu_child_config child = { .loop = config->loop,
                                      .deadline_ms = 1000u * (unsigned)config->deadline_s,
                                      .seen = on_seen,
                                      .xid = on_xid,
                                      .done = on_done,
                                      .failed = on_failed,
                                      .arg = n };
    int rc;

    if (!n)
        return err_set(err, -ENOMEM, "out of memory");
    n->c = *config;
    rc = store_load_gpus(config->store, load_one, n, err);
    n->child = rc == 0 ? gpu_child_new(&child) : NULL;
    if (rc == 0 && !n->child)
        rc = err_set(err, -ENOMEM, "out of memory");
    if (rc < 0) {
        gpu_node_free(n);
        return rc;
    }
    *ret = n;
    return 0;
}

void gpu_node_stop(struct gpu_node *n)
{
    if (!n)
        return;
    n->stopped = true;
    gpu_child_free(n->child);
    n->child = NULL;
    call_waiters(n);
}

void gpu_node_free(struct gpu_node *n)
{
    if (!n)
        return;
    gpu_node_stop(n);
    while (n->stored) {
        struct stored *s = n->stored;

        n->stored = s->next;
        free(s);
    }
    free(n);
}
