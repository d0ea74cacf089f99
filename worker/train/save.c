#include "worker/train/save.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/err.h"
#include "proto/job/jobspec.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/checkpoint/identity.h"
#include "worker/checkpoint/owner.h"
#include "worker/comm/comm.h"
#include "worker/evidence/recorder.h"
#include "worker/report/progress.h"
#include "worker/report/report.h"
#include "worker/train/machine.h"
#include "worker/train/trainer.h"

enum { PATH_BYTES = 4096 + 64, ROOM_S = 2 };

/* A job that verifies another job starts from the other job's checkpoints. */
static void folder(const struct keeper *k, char ret[PATH_BYTES])
{
    const char *other = k->machine->spec->verify_evidence;

    snprintf(ret, PATH_BYTES, "%s/checkpoints", other ? other : k->machine->opt->job_dir);
}

/* Rank 0 calls it. The link serves users and scripts; training does not depend on it. */
static void link_best(const struct keeper *k, const char *dir, int64_t step)
{
    struct err why, ignored;

    if (ckpt_link_best(dir, step, &why) < 0)
        report_event(k->machine->report, &ignored, "warning", "checkpoint", "%s", why.msg);
}

/* Up to that step a longer job has the same learning rates and sizes of pictures. */
static bool is_shared(const void *spec, int64_t step)
{
    return jobspec_on_the_way(spec, step);
}

static int prune(const struct keeper *k, const char *dir, const struct state *state, struct err *err)
{
    const struct jobspec *s = k->machine->spec;
    const bool changes_at_end = !jobspec_on_the_way(s, s->train_steps - 1); /* otherwise a longer job can start from one of the newest */
    const struct ckpt_due due = { s->checkpoint_every, s->train_steps, changes_at_end ? is_shared : NULL, s };

    return ckpt_prune(dir, (int)s->checkpoint_keep, state->best_step > 0 ? state->best_step : -1, due, err);
}

/* Order: the files are written, the reports become durable, the checkpoint is published. So a checkpoint never knows
 * more than the spool. */
static int save(const struct keeper *k, const struct state *state, struct err *err)
{
    struct ckpt_identity id;
    struct trained of = k->of;
    char dir[PATH_BYTES], path[PATH_BYTES + 32], *job = owner_text(k->machine->spec);
    int64_t bytes = 0;
    bool best = k->validates && state->best_step == state->step;
    int rc;

    of.job = job;
    folder(k, dir);
    rc = owner_identity(k->machine->spec, k->store_id, &id, err);
    if (rc >= 0)
        rc = state_save(state, &of, dir, &id, &bytes, err);
    free(job);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = ckpt_path(dir, state->step, path, sizeof path, err);
    if (rc >= 0)
        rc = report_ckpt_wait_publish(k->machine->report, state->step, path, err);
    if (rc >= 0)
        rc = ckpt_publish(dir, state->step, err);
    if (rc >= 0 && (best || !k->validates || !ckpt_has_best(dir)))
        link_best(k, dir, state->step);
    if (rc >= 0)
        rc = report_ckpt_published(k->machine->report, state->step, path, bytes, state->val_step == state->step ? state->val_loss : NAN,
                                   best, err);
    if (rc >= 0)
        rc = prune(k, dir, state, err);
    if (rc >= 0 && !ckpt_has_best(dir)) /* the best step has no checkpoint, and the former best checkpoint is gone */
        link_best(k, dir, state->step);
    return rc;
}

static bool is_no_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

/* Rank 0 calls it. Returns 1 if the disk was full and training continues without this checkpoint. The other ranks learn
 * that by keeper_saved(). */
static int save_where_there_is_room(struct keeper *k, const struct state *state, bool last, struct err *err)
{
    bool told = false;
    int rc;

    while (is_no_room(rc = save(k, state, err))) {
        struct err ignored;

        if (!told)
            report_event(k->machine->report, &ignored, "warning", last ? "no_room" : "checkpoint",
                         "no room for the checkpoint of step %lld: %s; %s", (long long)state->step, err->msg,
                         last ? "it is tried until there is room" : "training continues without it");
        told = true;
        if (!last)
            return 1;
        progress_phase(k->machine->progress, PHASE_REPORT_WAIT); /* this phase has no deadline */
        sleep(ROOM_S);
    }
    return rc;
}

int keeper_save(struct keeper *k, const struct state *state, bool last, struct err *err)
{
    int rc;

    if (k->saved_step == state->step || k->machine->spec->verify_evidence)
        return 0;
    progress_phase(k->machine->progress, PHASE_CHECKPOINT);
    rc = recorder_sync(k->recorder, err);
    if (rc >= 0 && k->machine->opt->rank == 0)
        rc = save_where_there_is_room(k, state, last, err);
    if (rc == 0)
        k->saved_step = state->step;
    if (rc >= 0 && k->machine->opt->rank == 0)
        rc = identity_save(k->identity, err);
    return rc < 0 ? rc : 0;
}

int keeper_saved(const struct keeper *k, int64_t step, bool *ret, struct err *err)
{
    uint64_t saved = k->saved_step == step; /* only rank 0's value counts */
    int rc = comm_broadcast(k->machine->comm, COMM_SYNC, &saved, sizeof saved, err);

    *ret = saved != 0;
    return rc;
}

/* ---- resume ---- */

static void passed_over(void *arg, const char *text)
{
    const struct keeper *k = arg;
    struct err ignored;

    report_event(k->machine->report, &ignored, "warning", "checkpoint", "%s", text);
}

/* Rank 0 calls it. The previous attempt may have died after publishing and before its report, so the report is
 * repeated. The store accepts a repetition. */
static int report_resume(const struct keeper *k, const struct state *state, int64_t step, const char *path, int64_t bytes, struct err *err)
{
    int rc = report_start(k->machine->report, step, step > 0 ? path : NULL, err);

    if (rc < 0 || step == 0 || k->machine->spec->verify_evidence) /* a checkpoint of a verified run is not this job's */
        return rc;
    return report_ckpt_published(k->machine->report, step, path, bytes, state->val_step == step ? state->val_loss : NAN,
                                 k->validates && state->best_step == step, err);
}

/* For a run that is verified, the evidence compares the specs; the number in the database and the place of the data may
 * differ. So any owner is accepted. */
static int whose(const struct keeper *k, struct ckpt_identity *ret, struct err *err)
{
    *ret = (struct ckpt_identity){ .store_id = "" };
    return k->machine->spec->verify_evidence ? 0 : owner_identity(k->machine->spec, k->store_id, ret, err);
}

/* The start of this attempt. */
struct begin {
    int64_t step;
    int64_t shorter; /* 1: the checkpoint was made when the job had fewer steps */
};

/* Rank 0 calls it. */
static int pick(const struct keeper *k, const char *dir, const struct ckpt_identity *id, struct begin *ret, struct err *err)
{
    const struct jobspec *s = k->machine->spec;
    int rc;

    *ret = (struct begin){ 0, 0 };
    if (s->verify_evidence)
        return ckpt_newest(dir, id, s->verify_from, &ret->step, err);
    rc = ckpt_pick(dir, id, passed_over, (void *)k, &ret->step, err);
    if (rc != ERR_STATE)
        return rc;
    rc = owner_pick_shorter(s, k->store_id, dir, &ret->step, err);
    ret->shorter = rc == 0;
    return rc == ERR_STATE ? owner_refuse(s, k->store_id, dir, err) : rc;
}

static void relink_best(const struct keeper *k, const char *dir, const struct state *state)
{
    char path[PATH_BYTES + 32];
    struct err ignored;
    bool there = k->validates && state->best_step > 0 && ckpt_path(dir, state->best_step, path, sizeof path, &ignored) == 0 &&
                 access(path, F_OK) == 0;

    if (there || !k->validates || !ckpt_has_best(dir))
        link_best(k, dir, there ? state->best_step : state->step);
}

int keeper_resume(struct keeper *k, struct state *state, struct err *err)
{
    struct ckpt_identity id;
    char dir[PATH_BYTES], path[PATH_BYTES + 32];
    struct begin from = { 0, 0 };
    int64_t step, bytes = 0;
    int rc = whose(k, &id, err);

    folder(k, dir);
    if (rc >= 0 && k->machine->opt->rank == 0)
        rc = pick(k, dir, &id, &from, err);
    if (rc >= 0)
        rc = comm_broadcast(k->machine->comm, COMM_SYNC, &from, sizeof from, err);
    step = from.step;
    if (from.shorter) /* rank 0 found that */
        id.spec[0] = '\0';
    if (state->proof)
        state->proof->shorter = from.shorter;
    if (rc >= 0 && step > 0)
        rc = state_load(state, &k->of, dir, step, &id, &bytes, err);
    if (rc >= 0)
        rc = ckpt_path(dir, step, path, sizeof path, err);
    if (rc >= 0 && k->machine->opt->rank == 0)
        rc = report_resume(k, state, step, path, bytes, err);
    if (rc < 0)
        return rc;
    if (k->machine->opt->rank == 0 && step > 0 && !k->machine->spec->verify_evidence) /* an earlier attempt may have died before this */
        relink_best(k, dir, state);
    k->saved_step = step > 0 ? step : -1;
    progress_step(k->machine->progress, (uint64_t)step);
    return k->identity ? identity_begin(k->identity, step, from.shorter, err) : 0;
}

void keeper_reject(const struct keeper *k, int64_t step)
{
    char dir[PATH_BYTES];
    struct err ignored;

    folder(k, dir);
    if (k->machine->opt->rank == 0 && step > 0 && !k->machine->spec->verify_evidence)
        ckpt_set_aside(dir, step, &ignored);
}
