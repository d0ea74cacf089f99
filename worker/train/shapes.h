/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/shapes.h - which shapes of batches will be computed: a device that plans hears of all of them before the first step, and where the tier
 * changes as soon as that is agreed. Where a shard's canvas follows from its pictures it hears of those a few steps before they come, and of validation's. */
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
    const struct task *train, *val; /* NULL: nothing trains; no validation */
    int val_batch;                  /* images of a validation shard */
    int64_t val_every;              /* steps */
};

/* Everything in opt is borrowed. NULL: out of memory. */
struct shapes *shapes_new(const struct shapes_options *opt);
void shapes_free(struct shapes *s);
/* Before `step`, with the device in its tier: the device is ready for all shapes that are known to come, so that no step has to wait for a plan; what follows
 * from pictures of later steps is made meanwhile. Rank 0 reports what was waited for. */
int shapes_ready(struct shapes *s, int64_t step, struct err *err);
/* Of a run that validates the state after `step` and trains nothing, with the device in its tier: likewise for that validation. Where canvases follow from
 * pictures nothing is waited for. */
int shapes_ready_to_validate(struct shapes *s, int64_t step, struct err *err);
