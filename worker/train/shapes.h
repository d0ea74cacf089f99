/* worker/train/shapes.h - which shapes of batches will be computed: a device that plans hears of all of them before the first step, and where the tier
 * changes as soon as that is agreed. */
#pragma once
#include <stdint.h>

struct control;
struct course;
struct err;
struct machine;
struct model;
struct shapes;

struct shapes_options {
    const struct machine *machine;
    struct model *model;
    const struct course *course;
    const struct control *control;
    int val_images, val_batch; /* of the validation split, 0: none; of a shard of it */
};

/* Everything in opt is borrowed. NULL: out of memory. */
struct shapes *shapes_new(const struct shapes_options *opt);
void shapes_free(struct shapes *s);
/* Before `step`, with the device in its tier: the device is ready for all shapes that are known to come, so that no step has to wait for a plan. Rank 0
 * reports what that took. */
int shapes_ready(struct shapes *s, int64_t step, struct err *err);
