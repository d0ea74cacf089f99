/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/validate.h - the validation split: losses in eval mode and
 * detections, from the same forward pass. Its shards do not depend on the number of ranks; ranks take them in turn, and
 * nothing is exchanged before the end. For depth networks rank 0 also leaves a picture to look at
 * (report/val_picture.h). */
#pragma once
#include <stdbool.h>

struct err;
struct gather;
struct machine;
struct model;
struct optimizer;
struct rows;
struct split;
struct state;
struct tape;

struct validator {
    const struct machine *machine;
    struct model *model;
    struct tape *tape;
    struct optimizer *optimizer; /* its averages are validated, if it keeps any; NULL: the weights are validated */
    const struct split *val;
    const struct rows *rows;
    struct state *state;
    struct gather *losses; /* of all shards; opened by the first validation, closed by the caller */
    bool pictureless;      /* already reported: no picture can be written */
    bool saturated;        /* already reported: much of a picture is at model.min_depth */
};

/* Validates the state after state->step, once: losses and detections of the whole split; rank 0 scores and reports. */
int validator_run(struct validator *t, struct err *err);
/* by: checkpoint.best. */
bool validation_is_better(const char *by, double value, double than);
