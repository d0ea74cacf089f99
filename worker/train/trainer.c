#include "worker/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/err.h"
#include "worker/comm/comm.h"
#include "worker/report/progress.h"
#include "worker/optim/schedule.h"
#include "worker/train/trainer_impl.h"

/* What is due after step t->state.step by number or by word; a step validates at most once, before its checkpoint. *ret_outcome is set when the
 * job ends here. */
static int after_step(struct trainer *t, const char **ret_outcome, struct err *err)
{
    const struct jobspec *s = t->spec;
    enum report_word word = control_due(&t->control, t->state.step);
    bool log = schedule_due(s->train_log_every, t->state.step, s->train_steps);
    bool validate = t->val.set && (word == WORD_EVAL || schedule_due(s->val_every, t->state.step, s->train_steps));
    bool save = word == WORD_CHECKPOINT || word == WORD_PAUSE || t->state.step == s->train_steps ||
                schedule_due(s->checkpoint_every, t->state.step, s->train_steps);
    int rc = log || validate || save || word != WORD_NONE ? trainer_settle(t, err) : 0;

    if (rc >= 0 && log)
        rc = trainer_log(t, err);
    if (rc >= 0 && validate)
        rc = trainer_validate(t, err);
    if (rc >= 0 && save)
        rc = trainer_save(t, err);
    if (t->state.step == s->train_steps)
        *ret_outcome = "completed";
    else if (word == WORD_PAUSE)
        *ret_outcome = "paused";
    else if (word == WORD_CANCEL)
        *ret_outcome = "cancelled";
    return rc;
}

static int train(struct trainer *t, const char **ret_outcome, struct err *err)
{
    int rc = 0;

    if (t->state.step >= t->spec->train_steps)
        *ret_outcome = "completed";
    while (!*ret_outcome && rc >= 0) {
        rc = trainer_step(t, err);
        if (rc >= 0)
            rc = after_step(t, ret_outcome, err);
    }
    return rc;
}

/* Who has to act on a failure: only "fault" is tried again. */
static const char *class_of(int code)
{
    switch (code) {
    case ERR_NONFINITE:
        return "nonfinite";
    case ERR_DATA:
        return "data";
    case ERR_INPUT:
    case ERR_UNSUPPORTED:
        return "user";
    default:
        return "fault";
    }
}

/* All ranks fail on a loss that is not finite, and each says so; a rank that was only aborted leaves the word to the one that failed. */
static void report_failure(struct trainer *t, int code, const struct err *why)
{
    struct err ignored;

    if (t->machine.comm)
        comm_abort(t->machine.comm);
    if (t->machine.report && code != ERR_ABORTED)
        report_end(t->machine.report, "failed", why->msg, class_of(code), &ignored);
}

int trainer_run(const struct jobspec *spec, const struct trainer_options *opt, struct err *err)
{
    struct trainer *t = calloc(1, sizeof *t);
    const char *outcome = NULL;
    int rc;

    if (!t)
        return err_set(err, ERR_DEVICE, "out of memory");
    rc = trainer_open(t, spec, opt, err);
    if (rc >= 0)
        rc = train(t, &outcome, err);
    if (rc >= 0) {
        progress_phase(t->machine.progress, PHASE_ENDING);
        rc = report_end(t->machine.report, outcome, "", "", err);
    } else {
        report_failure(t, rc, err);
    }
    trainer_close(t);
    free(t);
    return rc < 0 ? rc : 0;
}

int trainer_refuse(const struct trainer_options *opt, const struct err *why)
{
    struct report *report;
    struct err ignored;

    if (report_open(opt->control_fd, opt->rank, opt->local_rank, opt->nranks, &report, &ignored) >= 0) {
        report_end(report, "failed", why->msg, class_of(why->code), &ignored);
        report_close(report);
    }
    return why->code;
}
