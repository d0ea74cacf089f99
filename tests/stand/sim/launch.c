/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/launch.c - folders, locks and processes as detd finds them
 * (daemon/launch/launch.h), and a driver that lists healthy GPUs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpu/gpu.h"
#include "daemon/gpu/gpu_child.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launcher.h"
#include "daemon/job/life.h"
#include "proto/err.h"
#include "proto/host/gpulock.h"
#include "proto/report.h"
#include "tests/stand/sim/world.h"

struct gpu_child {
    struct gpu_child_config c;
    bool looking, freed, loaded;
};
static struct gpu_child *child; /* of the daemon that runs */

static const char *const troubles[] = { "no room on the disk", "too many open files", "out of memory", "text file busy" };

static void let_go(struct folder *f)
{
    if (f->lock == LOCK_DETD)
        f->lock = LOCK_FREE;
}

static int prepare(struct store *s, struct launch_request *rq, struct err *err)
{
    struct folder *f = folder_of(rq->job);
    char *spec = NULL;
    int rc;

    if (f->spent && !f->ticket[0] &&
        !(f->reopened && rq->last_seq == f->records[f->count - 1].seq)) /* launch.c finds this by its own record of the end */
        fail("job %lld: is to run, and its spool was removed", (long long)f->id);
    if (f->lock != LOCK_FREE)
        return err_set(err, -EWOULDBLOCK, "lock of job %lld", (long long)rq->job);
    if (world.faults && chance(world.rates.refused)) {
        say("job %lld: cannot be prepared", (long long)f->id);
        return err_set(err, chance(50) ? -ENOSPC : -EMFILE, "%s", troubles[roll(4)]);
    }
    f->spent = false;
    if (rq->last_seq > 0 && f->count == 0 && !f->ticket[0])
        fail("job %lld: detd believes in reports up to %lld of a job that never wrote one", (long long)f->id, (long long)rq->last_seq);
    rc = store_get_spec(s, rq->job, &spec, err);
    memory_fail(0); /* the following steps are played */
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0)
        fail("job %lld: its spec is not in the store: %s", (long long)f->id, err->msg);
    free(spec);
    f->lock = LOCK_DETD;
    return 0;
}

struct launched {
    struct folder *f;
    int detd;
    launch_exit *on_exit; /* NULL: not watched yet */
    void *arg;
    bool left;
    bool gone; /* nothing of a job with a ticket is left */
    int status;
    const char *why;
};
static struct launched *children[WORLD_JOBS]; /* for each place, the process that was started last */

static int start(struct launch_request *rq, struct launched **ret, struct err *err)
{
    struct folder *f = folder_of(rq->job);
    struct launched *c = must_alloc(sizeof *c);

    let_go(f);
    if (world.faults && chance(world.rates.refused)) {
        say("job %lld: cannot be started", (long long)f->id);
        free(c);
        return err_set(err, -ENOENT, "start detd-job: no such file");
    }
    check_start(f, rq);
    *c = (struct launched){ .f = f, .detd = detd_number };
    *ret = children[f->slot] = c;
    sup_start(f, rq);
    return 0;
}

int launch_start(struct store *s, struct launch_request *rq, const atomic_bool *stop, struct launched **ret, struct err *err)
{
    int rc = prepare(s, rq, err);

    *ret = NULL;
    if (rc == 0 && rq->ticket[0])
        return 0;
    if (rc == 0 && *stop)
        let_go(folder_of(rq->job));
    else if (rc == 0)
        rc = start(rq, ret, err);
    return rc;
}

/* detd does not know of its end, nor of the reason. */
static void left_unseen(struct folder *f)
{
    f->died_under = f->refused_under = 0;
}

static void exit_due(void *arg)
{
    struct launched *c = arg;

    c->on_exit(c->arg, c->f->id, c->status, c->why);
    free(c);
}

int launch_watch(uv_loop_t *loop, struct launched *c, launch_exit *on_exit, void *arg)
{
    (void)loop;
    if (world.faults && chance(world.rates.refused)) {
        say("job %lld: its supervisor cannot be watched", (long long)c->f->id);
        if (c->left)
            left_unseen(c->f);
        else
            children[c->f->slot] = NULL;
        free(c);
        return -EMFILE;
    }
    c->on_exit = on_exit;
    c->arg = arg;
    if (c->left)
        loop_post(exit_due, c);
    return 0;
}

void launch_sup_left(struct folder *f, int detd, int status, const char *why)
{
    struct launched *c = children[f->slot];

    if (!c || detd != detd_number || c->detd != detd) {
        left_unseen(f);
        return;
    }
    children[f->slot] = NULL;
    c->left = true;
    c->status = status;
    c->why = why;
    if (c->on_exit)
        loop_post(exit_due, c);
}

void launch_detd_died(void)
{
    child = NULL;
    for (int i = 0; i < world.njobs; i++)
        let_go(&world.jobs[i]);
}

void launch_tick(void)
{
    for (int i = 0; i < world.njobs; i++) {
        struct folder *f = &world.jobs[i];

        if (f->lock == LOCK_STRAY && f->stray_s > 0 && --f->stray_s == 0)
            f->lock = LOCK_FREE;
    }
}

bool launch_lock_is_free(const char *jobs_dir, int64_t job)
{
    const struct folder *f = folder_of(job);

    (void)jobs_dir;
    return !f || f->lock == LOCK_FREE;
}

bool launch_has_spool(const char *jobs_dir, int64_t job)
{
    (void)jobs_dir;
    return folder_of(job)->ticket[0] ? folder_of(job)->begun : folder_of(job)->count > 0 && !folder_of(job)->spent;
}

/* The block is made by the first start. */
bool launch_note_want(const char *jobs_dir, const struct job_row *row, const char *store_id, enum job_want want)
{
    struct folder *f = folder_of(row->id);

    (void)jobs_dir;
    (void)store_id;
    if (f->started > 0)
        f->noted = want;
    if (f->noted != JOB_WANT_RUN)
        say("job %lld: %s is noted", (long long)f->id, job_want_name(want));
    if (f->noted == JOB_WANT_CANCEL && f->cancel_noted_by == 0)
        f->cancel_noted_by = detd_number;
    return f->started > 0;
}

enum job_want launch_noted_want(const char *jobs_dir, const struct job_row *row, const char *store_id)
{
    const struct folder *f = folder_of(row->id);

    (void)jobs_dir;
    (void)store_id;
    return f ? (enum job_want)f->noted : JOB_WANT_RUN;
}

void launch_drop_spool(const char *jobs_dir, const struct job_row *row, const char *id)
{
    struct folder *f = folder_of(row->id);

    (void)jobs_dir;
    (void)id;
    if (f->lock != LOCK_FREE)
        return;
    check_store();
    if (!f->end)
        fail("job %lld: its spool is removed, and its end is not stored", (long long)row->id);
    say("job %lld: its spool is removed", (long long)row->id);
    f->spent = true;
}

int launch_remove_folder(const char *jobs_dir, const struct job_row *row, const char *store_id, int max, struct err *err)
{
    int64_t job = row->id;
    struct folder *f = folder_of(job);

    (void)jobs_dir;
    (void)store_id;
    (void)max;
    check_store();
    if (!f->gone)
        fail("job %lld: its folder is removed, and the store has the job", (long long)job);
    if (f->lock != LOCK_FREE)
        return err_set(err, -EWOULDBLOCK, "processes of job %lld live", (long long)job);
    if (f->ticket[0] && f->begun && !f->cleared)
        return LAUNCH_ITS_USERS;
    if (f->entries == 0)
        f->entries = 1 + (int)roll(4);
    if (f->entries > 0 && --f->entries > 0)
        return 1;
    if (f->entries == 0)
        say("job %lld: its folder is removed", (long long)job);
    f->entries = -1;
    return 0;
}

long launch_session(const char *jobs_dir, int64_t job)
{
    (void)jobs_dir;
    return folder_of(job)->lock == LOCK_FREE ? 0 : 100 + (long)job;
}

int launch_kill(const char *jobs_dir, int64_t job, char *ret, size_t size)
{
    struct folder *f = folder_of(job);

    (void)jobs_dir;
    ret[0] = '\0';
    if (f->lock != LOCK_SUP && f->lock != LOCK_STRAY)
        return 0;
    snprintf(ret, size, "process %lld (detd-worker, state S)", 100 + (long long)job);
    say("job %lld: detd kills its processes", (long long)job);
    if (f->sup && world.mono - f->started < LIFE_LEAVE_S && !detd_job_is_late(job))
        fail("job %lld: its supervisor was started %.0f s ago, and is killed for one before it", (long long)f->id, world.mono - f->started);
    if (f->stubborn > 0 && f->stubborn--)
        return 1;
    if (f->sup)
        sup_kill(f);
    f->lock = LOCK_FREE;
    return 1;
}

/* ---- detd-launch ---- */

static struct folder *of_ticket(const char *ticket)
{
    for (int i = 0; i < world.njobs; i++)
        if (ticket[0] && strcmp(world.jobs[i].ticket, ticket) == 0)
            return &world.jobs[i];
    fail("there is no ticket '%s'", ticket);
}

int launcher_start(struct launcher *l, const struct launch_request *rq, launch_exit *on_exit, void *arg, struct err *err)
{
    struct folder *f = of_ticket(rq->ticket);
    struct launched *c;

    (void)l;
    let_go(f);
    if (world.faults && chance(world.rates.refused))
        return err_set(err, ERR_STATE, "detd-launch does not answer");
    check_start(f, rq);
    c = must_alloc(sizeof *c);
    *c = (struct launched){ .f = f, .detd = detd_number, .on_exit = on_exit, .arg = arg };
    children[f->slot] = c;
    f->begun = true;
    liar_start(f, rq);
    return 0;
}

static void ticket_exit_due(void *arg)
{
    struct launched *c = arg;

    if (c->gone)
        detd_scope_is_empty(c->f->id, true);
    exit_due(c);
}

void launch_liar_left(struct folder *f, int detd, int status)
{
    struct launched *c = children[f->slot];

    if (!c || detd != detd_number || c->detd != detd)
        return;
    children[f->slot] = NULL;
    c->gone = f->lock == LOCK_FREE;
    c->status = status;
    c->why = status == 137 ? "" : "says its user";
    loop_post(ticket_exit_due, c);
}

/* No process of the job lives. */
void launch_renew_locks(const char *jobs_dir, int64_t job, const struct gpulocks *locks, const char *gpus)
{
    (void)jobs_dir;
    (void)locks;
    (void)gpus;
    say("job %lld: its locks are renewed", (long long)job);
}

void launch_drop(const struct launch_request *rq)
{
    let_go(folder_of(rq->job));
}

int launch_held_ticket(const char *jobs_dir, int64_t job, char *ret, int *ret_lock, struct err *err)
{
    (void)jobs_dir;
    (void)err;
    snprintf(ret, LAUNCH_TICKET_HEX + 1, "%s", folder_of(job)->ticket);
    *ret_lock = -1;
    return 0;
}

/* A question to detd-launch that waits for its answer. */
struct asked {
    struct folder *f;
    launch_exit *on_exit;
    launcher_killed *killed;
    void *arg;
};

static void ask(struct folder *f, launch_exit *on_exit, launcher_killed *killed, void *arg, void (*answer)(void *arg))
{
    struct asked *a = must_alloc(sizeof *a);

    *a = (struct asked){ f, on_exit, killed, arg };
    loop_post(answer, a);
}

static void clear_due(void *arg)
{
    static const int states[] = { 0, 0, SUP_EXIT_REFUSED, 1 };
    struct asked *a = arg;
    int status = world.faults ? states[roll(4)] : 0;

    a->f->cleared = status == 0;
    a->on_exit(a->arg, a->f->id, status, "");
    free(a);
}

int launcher_clear(struct launcher *l, const char *ticket, int lock_fd, launch_exit *on_exit, void *arg, struct err *err)
{
    (void)l;
    (void)lock_fd;
    (void)err;
    ask(of_ticket(ticket), on_exit, NULL, arg, clear_due);
    return 0;
}

const char *launcher_trouble(struct launcher *l)
{
    (void)l;
    return "";
}

static void kill_due(void *arg)
{
    struct asked *a = arg;
    struct folder *f = a->f;
    bool lived = f->lock == LOCK_SUP || f->lock == LOCK_STRAY;

    say("job %lld: detd-launch kills its processes", (long long)f->id);
    if (f->liar)
        liar_kill(f);
    else if (f->lock == LOCK_STRAY)
        f->lock = LOCK_FREE;
    if (a->killed)
        a->killed(a->arg, true, false, lived ? "all processes of its scope" : "", "", NULL);
    if (a->killed)
        detd_scope_is_empty(f->id, false);
    free(a);
}

int launcher_kill(struct launcher *l, const char *ticket, launcher_killed *done, void *arg, struct err *err)
{
    struct folder *f = of_ticket(ticket);

    (void)l;
    (void)err;
    if (!done && f->liar)
        fail("job %lld: its scope is cleared, and its supervisor lives", (long long)f->id);
    ask(f, NULL, done, arg, kill_due);
    return 0;
}

/* ---- GPUs ---- */

struct gpu_child *gpu_child_new(const struct gpu_child_config *config)
{
    struct gpu_child *c = calloc(1, sizeof *c);

    if (c) {
        c->c = *config;
        c->loaded = chance(80);
    }
    child = c;
    return c;
}

static void look_due(void *arg)
{
    struct gpu_child *c = arg;
    struct gpu_seen seen = { .name = "Simulated", .driver = "1", .memory_bytes = 1LL << 34, .ecc_errors = 0 };

    if (c->freed)
        return;
    c->looking = false;
    if (!world.plan.gpus || !c->loaded) { /* the driver is loaded after detd, or there is no driver */
        c->loaded = true;
        c->c.failed(c->c.arg, true, "no driver");
        return;
    }
    for (int i = 0; i < world.plan.gpus; i++) {
        seen.index = i;
        snprintf(seen.uuid, sizeof seen.uuid, "GPU-%d", i);
        c->c.seen(c->c.arg, &seen);
    }
    c->c.done(c->c.arg);
}

/* An error that makes the GPU useless, or an error of a program. */
static void xid_due(void *arg)
{
    struct gpu_child *c = arg;
    char uuid[16];

    if (c->freed)
        return;
    snprintf(uuid, sizeof uuid, "GPU-%u", roll((uint32_t)world.plan.gpus));
    c->c.xid(c->c.arg, uuid, chance(70) ? 79 : 31);
}

void gpu_fault(void)
{
    if (world.plan.gpus && detd_number && child)
        loop_post(xid_due, child);
}

void gpu_child_look(struct gpu_child *c)
{
    if (c->looking)
        return;
    c->looking = true;
    loop_post(look_due, c);
}

bool gpu_child_is_looking(const struct gpu_child *c)
{
    return c->looking;
}

void gpu_child_rest(struct gpu_child *c)
{
    (void)c;
}

/* Callbacks may be on their way: the remaining memory is freed with the process. */
void gpu_child_free(struct gpu_child *c)
{
    if (c)
        c->freed = true;
}

bool gpulock_is_held(const struct gpulocks *l, const char *uuid, struct err *ret_why)
{
    (void)l;
    (void)uuid;
    (void)ret_why;
    return false;
}
