/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rows.h - one run of the threads over the units (pixels, rows,
 * slabs ...) of all local shards, so that many small shards cost one start. */
#pragma once
#include "worker/cpu/cpu.h"

/* The loop below it has no dependency from one turn to the next, even if source and destination are the same array. */
#define CPU_LANES _Pragma("GCC ivdep")

/* Pixels of the images in use. */
static inline size_t cpu_pixels(const struct tensor *t)
{
    return (size_t)tensor_rows(t) * (size_t)t->h * (size_t)t->w;
}

struct shard_work {
    int nshards;
    size_t (*units)(const void *arg, int shard);
    void (*run)(const void *arg, int shard, size_t from, size_t to); /* units [from, to) of one shard */
    const void *arg;
};

/* Units must not see each other's results: threads and shards decide how they are cut into runs. */
void cpu_over_shards(struct device *dev, const struct shard_work *w);
