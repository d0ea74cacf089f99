/* worker/train/save.c - checkpoints of a running job: written, told of, found again. */
#include <math.h>
#include <stdio.h>

#include "proto/err.h"
#include "worker/checkpoint/ckpt.h"
#include "worker/checkpoint/identity.h"
#include "worker/checkpoint/owner.h"
#include "worker/comm/comm.h"
#include "worker/report/progress.h"
#include "worker/train/trainer_impl.h"

enum { PATH_BYTES = 4096 + 64 };

static void folder(const struct trainer *t, char ret[PATH_BYTES])
{
    snprintf(ret, PATH_BYTES, "%s/checkpoints", t->opt.job_dir);
}

static struct trained trained(const struct trainer *t)
{
    return (struct trained){ t->spec, t->machine.dev, t->model, t->optimizer, t->train.set };
}

/* Written, then durable reports, then published: a checkpoint never knows more than the spool. */
static int save(struct trainer *t, struct err *err)
{
    struct trained of = trained(t);
    struct ckpt_identity id;
    char dir[PATH_BYTES], path[PATH_BYTES + 32];
    int64_t bytes = 0;
    bool best = t->val.set && t->state.best_step == t->state.step;
    int rc;

    folder(t, dir);
    rc = owner_identity(t->spec, t->store_id, &id, err);
    if (rc >= 0)
        rc = state_save(&t->state, &of, dir, &id, &bytes, err);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    rc = ckpt_path(dir, t->state.step, path, sizeof path, err);
    if (rc >= 0)
        rc = report_ckpt_wait_publish(t->machine.report, t->state.step, path, err);
    if (rc >= 0)
        rc = ckpt_publish(dir, t->state.step, err);
    if (rc >= 0)
        rc = report_ckpt_published(t->machine.report, t->state.step, path, bytes,
                                   t->state.val_step == t->state.step ? t->state.val_loss : NAN, best, err);
    return rc < 0 ? rc : ckpt_prune(dir, (int)t->spec->checkpoint_keep, t->state.best_step > 0 ? t->state.best_step : -1, err);
}

int trainer_save(struct trainer *t, struct err *err)
{
    int rc = 0;

    if (t->saved_step == t->state.step)
        return 0;
    progress_phase(t->machine.progress, PHASE_CHECKPOINT);
    if (t->opt.rank == 0)
        rc = save(t, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = identity_save(t->identity, err);
    t->saved_step = t->state.step;
    return rc;
}

/* ---- resume ---- */

static void passed_over(void *arg, const char *text)
{
    struct trainer *t = arg;
    struct err ignored;

    report_event(t->machine.report, &ignored, "warning", "checkpoint", "%s", text);
}

/* Rank 0. The rank before may have died between publishing and saying so: it is said again, the store takes it twice. */
static int report_resume(struct trainer *t, int64_t step, const char *path, int64_t bytes, struct err *err)
{
    int rc = report_start(t->machine.report, step, step > 0 ? path : NULL, err);

    if (rc < 0 || step == 0)
        return rc;
    return report_ckpt_published(t->machine.report, step, path, bytes, t->state.val_step == step ? t->state.val_loss : NAN,
                                 t->val.set && t->state.best_step == step, err);
}

int trainer_resume(struct trainer *t, struct err *err)
{
    struct trained to = trained(t);
    struct ckpt_identity id;
    char dir[PATH_BYTES], path[PATH_BYTES + 32];
    int64_t step = 0, bytes = 0;
    int rc = owner_identity(t->spec, t->store_id, &id, err);

    folder(t, dir);
    if (rc >= 0 && t->opt.rank == 0)
        rc = ckpt_pick(dir, &id, passed_over, t, &step, err);
    if (rc == ERR_STATE)
        rc = owner_refuse(t->spec, t->store_id, dir, err);
    if (rc >= 0)
        rc = comm_broadcast(t->machine.comm, COMM_SYNC, &step, sizeof step, err);
    if (rc >= 0 && step > 0)
        rc = state_load(&t->state, &to, dir, step, &id, &bytes, err);
    if (rc >= 0)
        rc = ckpt_path(dir, step, path, sizeof path, err);
    if (rc >= 0 && t->opt.rank == 0)
        rc = report_resume(t, step, path, bytes, err);
    if (rc < 0)
        return rc;
    t->saved_step = step > 0 ? step : -1;
    progress_step(t->machine.progress, (uint64_t)step);
    return t->identity ? identity_check(t->identity, step, err) : 0;
}
