/* worker/train/trainer_impl.h - what the parts of the trainer share: setup.c opens and closes it, step.c makes a step, validate.c a
 * validation, save.c checkpoints, trainer.c is the loop over them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/jobspec.h"
#include "worker/checkpoint/state.h"
#include "worker/gradients/gradients.h"
#include "worker/report/report.h"
#include "worker/train/control.h"
#include "worker/train/course.h"
#include "worker/train/machine.h"
#include "worker/train/splits.h"
#include "worker/train/trainer.h"

struct optimizer;
struct shapes;
struct identity;
struct losses;
struct statistics;
struct gather;

struct trainer {
    const struct jobspec *spec;
    struct trainer_options opt;
    struct machine machine;
    char store_id[REPORT_STORE_ID]; /* whose job it is, see ckpt.h */
    struct control control;
    struct course course;
    struct identity *identity; /* rank 0 */
    /* model */
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct gradients *gradients;
    struct losses *losses;
    struct statistics *statistics;
    struct gather *val_losses; /* made at the first validation */
    struct optimizer *optimizer;
    /* data */
    struct split train, val;
    struct shapes *shapes; /* that the device was told to expect */
    struct state state;
    int64_t saved_step; /* of the last checkpoint, -1: none */
    /* of this attempt */
    bool unread; /* the losses of the last step, and what was found of its gradient, are on their way; skips and window lack them */
    double images_per_s;
    int64_t window_ns;      /* when the log window began */
    int64_t window_resumed; /* images in it that an earlier attempt trained */
    int64_t images_rank;    /* trained by this rank */
};

/* ---- setup.c ---- */
/* Opens everything up to the state a job starts from, the checkpoint loaded. On failure trainer_close() frees what there is. */
int trainer_open(struct trainer *t, const struct jobspec *spec, const struct trainer_options *opt, struct err *err);
void trainer_close(struct trainer *t);

/* ---- step.c ---- */
/* One optimizer step: all waves, reduction, update; nothing waits for what the device makes of it. The losses of the step before are read.
 * ERR_NONFINITE names step, term and images, or after three steps in a row without a finite gradient step and parameter. */
int trainer_step(struct trainer *t, struct err *err);
/* Reads the last step's losses now: before a window is logged, a validation, a checkpoint and the end. All ranks alike. Fails as
 * trainer_step(). */
int trainer_settle(struct trainer *t, struct err *err);
/* Rank 0 reports the open window as the losses up to t->state.step, all ranks start a new one. */
int trainer_log(struct trainer *t, struct err *err);

/* Rank 0: one loss record of the job's state as it is now. */
int trainer_report(struct trainer *t, const char *split, const struct window *w, double images_per_s, struct err *err);

/* ---- validate.c ---- */
/* Losses and detections of the whole validation split; rank 0 scores and reports. */
int trainer_validate(struct trainer *t, struct err *err);

/* ---- save.c ---- */
int trainer_save(struct trainer *t, struct err *err);
/* Rank 0 picks the newest good checkpoint, all ranks load it. t->state.step stays 0 where there is none. */
int trainer_resume(struct trainer *t, struct err *err);
