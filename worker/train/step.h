/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/step.h - one optimizer step of this rank, in lockstep with all others. */
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

/* Everything in opt is borrowed. All ranks open alike. Closed with stepper_close(), before any of it. */
int stepper_open(const struct stepper_options *opt, struct stepper **ret_stepper, struct err *err);
/* Of its steps, the stepper's. */
struct recorder *stepper_recorder(const struct stepper *t);
/* NULL is nothing. */
void stepper_close(struct stepper *t);
/* All waves, sums over ranks, update; state->step is one more. Nothing waits for what the device makes of it; the losses of the step before are read.
 * ERR_NONFINITE names step, term and images, or after three steps in a row without a finite gradient step and parameter. */
int stepper_run(struct stepper *t, struct err *err);
/* Reads the last step's losses now: before a window is logged, a validation, a checkpoint and the end. All ranks alike. Fails as stepper_run(). */
int stepper_settle(struct stepper *t, struct err *err);
/* Rank 0 reports the open window as the losses up to state->step, all ranks start a new one. */
int stepper_log(struct stepper *t, struct err *err);
/* After a failure rank 0 reports what the open window has of the steps before it. saved: the step of the newest checkpoint; an attempt that goes on from there
 * takes the rows of later steps back, and of none up to there any may be reported. */
void stepper_log_rest(const struct stepper *t, int64_t saved);
