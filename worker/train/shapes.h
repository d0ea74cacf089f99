/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/shapes.h - the shapes of coming batches, for a device that
 * makes plans. The device gets all of them before the first step, and again as soon as a change of the tier is agreed.
 * If a shard's canvas follows from its pictures, the device gets the canvas a few steps ahead; the same holds for
 * validation. */
#pragma once
#include <stdint.h>

struct control;
struct course;
struct err;
struct machine;
struct model;
struct shapes;
struct task;

struct shapes_options {
    const struct machine *machine;
    struct model *model;
    const struct course *course;
    const struct control *control;
    const struct task *train, *val; /* NULL: no training; no validation */
    int val_batch;                  /* images of a validation shard */
    int64_t val_every;              /* steps */
};

/* Everything in opt is borrowed. NULL: out of memory. */
struct shapes *shapes_new(const struct shapes_options *opt);
void shapes_free(struct shapes *s);
/* To be called before `step`, with the device in its tier. Makes the device ready for all shapes known to come, so that
 * no step waits for a plan; plans for pictures of later steps are made meanwhile. Rank 0 reports the plans that were
 * waited for. */
int shapes_ready(struct shapes *s, int64_t step, struct err *err);
/* For a run that validates the state after `step` without training, with the device in its tier: the same for that
 * validation. If canvases follow from pictures it does not wait. */
int shapes_ready_to_validate(struct shapes *s, int64_t step, struct err *err);
