/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/course.h - the work of a rank in each step: its shards and
 * waves. It follows from the job file alone, so all ranks know it of each other. Pure. */
#pragma once
#include <stdint.h>

#include "worker/core/shards.h"

struct jobspec;

struct course {
    int64_t steps, batch; /* of the training; images of a step */
    int shards, waves;    /* of the job; of a rank */
    int images;           /* of a shard */
    uint64_t seed;
    int rank, nranks;
    struct span mine; /* shards of this rank */
};

void course_init(struct course *c, const struct jobspec *spec, int rank, int nranks);
