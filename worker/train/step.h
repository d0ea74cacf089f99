/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/step.h - one optimizer step of this rank, in lockstep with all
 * others. */
#pragma once
#include <stdint.h>

struct control;
struct course;
struct err;
struct machine;
struct model;
struct optimizer;
struct recorder;
struct rows;
struct split;
struct state;
struct stepper;
struct tape;

struct stepper_options {
    const struct machine *machine;
    const struct course *course;
    struct control *control;
    struct model *model;
    struct tape *tape;
    struct optimizer *optimizer;
    const struct split *train, *val; /* data; val->set NULL: without validation */
    const struct rows *rows;
    struct state *state;
};

/* Everything in opt is borrowed. All ranks must open alike. Must be closed with stepper_close() before the borrowed
 * objects. */
int stepper_open(const struct stepper_options *opt, struct stepper **ret_stepper, struct err *err);
/* Recorder of this stepper's steps. Owned by the stepper. */
struct recorder *stepper_recorder(const struct stepper *t);
/* NULL is ignored. */
void stepper_close(struct stepper *t);
/* Runs all waves, sums over ranks and updates the weights; state->step grows by one. Does not wait for the device's
 * results; reads the losses of the step before. ERR_NONFINITE names step, term and images. After three steps in a row
 * without a finite gradient it names step and parameter. */
int stepper_run(struct stepper *t, struct err *err);
/* Reads the last step's losses now: before a window is logged, a validation, a checkpoint and the end. All ranks must
 * call alike. Fails like stepper_run(). */
int stepper_settle(struct stepper *t, struct err *err);
/* Rank 0 reports the open window as the losses up to state->step, all ranks start a new one. */
int stepper_log(struct stepper *t, struct err *err);
/* After a failure rank 0 reports the open window's losses of the steps before. saved: the step of the newest
 * checkpoint. An attempt that continues from there takes back the rows of later steps, so rows up to there must not be
 * reported. */
void stepper_log_rest(const struct stepper *t, int64_t saved);
