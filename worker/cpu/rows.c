/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/rows.c - see rows.h. */
#include "worker/cpu/rows.h"

static void run_part(void *arg, size_t from, size_t to)
{
    const struct shard_work *w = arg;
    size_t first = 0;

    for (int v = 0; v < w->nshards && first < to; v++) {
        size_t end = first + w->units(w->arg, v), lo = from > first ? from : first, hi = to < end ? to : end;

        if (lo < hi)
            w->run(w->arg, v, lo - first, hi - first);
        first = end;
    }
}

void cpu_over_shards(struct device *dev, const struct shard_work *w)
{
    struct shard_work work = *w;
    size_t total = 0;

    for (int v = 0; v < w->nshards; v++)
        total += w->units(w->arg, v);
    if (total > 0)
        threads_run(cpu_threads(dev), total, run_part, &work);
}
