/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/launch.c - folders, locks and processes as detd finds them (daemon/launch/launch.h), and a driver that lists healthy GPUs. */
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

    if (f->spent && !(f->reopened && rq->last_seq == f->records[f->count - 1].seq)) /* launch.c finds this by its own record of the end */
        fail("job %lld: is to run, and its spool was removed", (long long)f->id);
    if (f->lock != LOCK_FREE)
        return err_set(err, -EWOULDBLOCK, "lock of job %lld", (long long)rq->job);
    if (world.faults && chance(world.rates.refused)) {
        say("job %lld: cannot be prepared", (long long)f->id);
        return err_set(err, chance(50) ? -ENOSPC : -EMFILE, "%s", troubles[roll(4)]);
    }
    f->spent = false;
    if (rq->last_seq > 0 && f->count == 0)
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
    return folder_of(job)->count > 0 && !folder_of(job)->spent;
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
    f->cancel_noted = f->cancel_noted || f->noted == JOB_WANT_CANCEL;
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
    if (f->sup && world.mono - f->started < LIFE_LEAVE_S)
        fail("job %lld: its supervisor was started %.0f s ago, and is killed for one before it", (long long)f->id, world.mono - f->started);
    if (f->stubborn > 0 && f->stubborn--)
        return 1;
    if (f->sup)
        sup_kill(f);
    f->lock = LOCK_FREE;
    return 1;
}

/* Its jobs all run as detd's user. */
int launcher_start(struct launcher *l, const struct launch_request *rq, launch_exit *on_exit, void *arg, struct err *err)
{
    (void)l;
    (void)on_exit;
    (void)arg;
    fail("job %lld: is started with a ticket", (long long)rq->job);
    return err_set(err, ERR_STATE, "no ticket");
}

void launch_renew_locks(const char *jobs_dir, int64_t job, const struct gpulocks *locks, const char *gpus)
{
    (void)jobs_dir;
    (void)locks;
    (void)gpus;
    fail("job %lld: its locks are renewed", (long long)job);
}

void launch_drop(const struct launch_request *rq)
{
    fail("job %lld: was prepared with a ticket", (long long)rq->job);
}

int launch_held_ticket(const char *jobs_dir, int64_t job, char *ret, int *ret_lock, struct err *err)
{
    (void)jobs_dir;
    (void)ret;
    (void)ret_lock;
    fail("job %lld: its ticket is looked for", (long long)job);
    return err_set(err, ERR_STATE, "no ticket");
}

int launcher_clear(struct launcher *l, const char *ticket, int lock_fd, launch_exit *on_exit, void *arg, struct err *err)
{
    (void)l;
    (void)lock_fd;
    (void)on_exit;
    (void)arg;
    fail("a folder is cleared, with ticket '%s'", ticket);
    return err_set(err, ERR_STATE, "no ticket");
}

const char *launcher_trouble(struct launcher *l)
{
    (void)l;
    return "";
}

int launcher_kill(struct launcher *l, const char *ticket, launcher_killed *done, void *arg, struct err *err)
{
    (void)l;
    (void)done;
    (void)arg;
    fail("a scope is killed, with ticket '%s'", ticket);
    return err_set(err, ERR_STATE, "no ticket");
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
