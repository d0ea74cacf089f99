/* worker/train/course.h - what a rank computes in which step: its shards and waves, and how large the network's input is. Follows from the job file
 * alone, so all ranks know it of each other. Pure. */
#pragma once
#include <stdint.h>

#include "worker/core/canvas.h"
#include "worker/core/shards.h"
#include "worker/data/sampler.h"

struct jobspec;

struct course {
    int64_t steps, batch; /* of the training; images of a step */
    int shards, waves;    /* of the job; of a rank */
    int images;           /* of a shard */
    uint64_t seed;
    int rank, nranks;
    struct span mine;     /* shards of this rank */
    struct scales scales; /* sizes of the input */
};

/* nominal, grain: the model's; its input's sides are multiples of grain. */
void course_init(struct course *c, const struct jobspec *spec, int rank, int nranks, struct canvas nominal, int grain);
/* The network's input in a step, counted from 1. */
struct canvas course_canvas(const struct course *c, int64_t step);
