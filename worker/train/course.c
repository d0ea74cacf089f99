#include "worker/train/course.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "proto/job/jobspec.h"

void course_init(struct course *c, const struct jobspec *spec, int rank, int nranks)
{
    *c = (struct course){ .steps = spec->train_steps,
                          .batch = spec->train_batch,
                          .shards = (int)spec->train_shards,
                          .waves = (int)spec->train_waves,
                          .images = (int)(spec->train_batch / spec->train_shards),
                          .seed = (uint64_t)spec->train_seed,
                          .rank = rank,
                          .nranks = nranks,
                          .mine = rank_shards(rank, nranks, (int)spec->train_shards) };
}
