#include "worker/train/course.h"

#include <stdbool.h>

#include "proto/jobspec.h"

/* The longer side is JOB_SIZE_GRAIN apart, or as much more as the model wants. */
static struct scales scales_of(const struct jobspec *s, struct canvas nominal, int grain)
{
    bool multi = s->data_augment_multiscale;
    int side = canvas_long_side(nominal);
    struct scales z = { nominal, multi && s->data_augment_size_min > 0 ? (int)s->data_augment_size_min : side,
                        multi && s->data_augment_size_max > 0 ? (int)s->data_augment_size_max : side, JOB_SIZE_GRAIN, grain };

    while (z.apart % grain)
        z.apart += JOB_SIZE_GRAIN;
    return z;
}

void course_init(struct course *c, const struct jobspec *spec, int rank, int nranks, struct canvas nominal, int grain)
{
    *c = (struct course){ .steps = spec->train_steps,
                          .batch = spec->train_batch,
                          .shards = (int)spec->train_shards,
                          .waves = (int)spec->train_waves,
                          .images = (int)(spec->train_batch / spec->train_shards),
                          .seed = (uint64_t)spec->train_seed,
                          .rank = rank,
                          .nranks = nranks,
                          .mine = rank_shards(rank, nranks, (int)spec->train_shards),
                          .scales = scales_of(spec, nominal, grain) };
}

struct canvas course_canvas(const struct course *c, int64_t step)
{
    return scales_canvas(&c->scales, c->seed, step, c->steps);
}
