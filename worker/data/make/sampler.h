/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/sampler.h - the sample at each position of the training
 * stream. Pure: everything follows from (seed, number of samples), so any rank, thread or resumed run sees the same
 * stream. Epochs are shuffled by Fisher-Yates from Philox words; the stream continues from one epoch into the next, so
 * no batch is short. */
#pragma once
#include <stdint.h>

#include "worker/core/canvas.h"

struct err;
struct sampler;

struct draw {
    int64_t epoch;
    int32_t sample;
    int32_t shard; /* of the step, for which it was drawn; set by the loader */
};

/* samples >= 1. Keeps the orders of two epochs, 8 bytes a sample. Caller frees. Must not be used by two threads at
 * once. */
int sampler_new(uint64_t seed, int32_t samples, struct sampler **ret_sampler, struct err *err);
void sampler_free(struct sampler *s);
/* The sample at a position of the stream, 0 <= position. Ascending positions are cheap. */
struct draw sampler_at(struct sampler *s, int64_t position);
/* The order of one epoch. ret: [samples]. */
void sampler_order(uint64_t seed, int64_t epoch, int32_t samples, int32_t *ret);

enum { SAMPLER_MAX_GROUPS = 16 };

/* Samples of a group (of SAMPLER_MAX_GROUPS, borrowed: [samples]) come together. The stream is cut into shards of so
 * many images. The first places of an epoch complete the shard that the epoch before began. After them, in the epoch's
 * order, a group's samples wait until they fill a shard. Samples that wait at the end of the epoch follow group by
 * group, so that a few shards are mixed; no sample is lost, doubled or taken into another epoch. Must be called before
 * the first sampler_at(). */
int sampler_group(struct sampler *s, const uint8_t *group, int shard_images, struct err *err);

/* Position of image i of shard v of the batch of a step (counted from 1). batch = shards * images of a shard. */
static inline int64_t stream_position(int64_t step, int64_t batch, int shards, int v, int i)
{
    return (step - 1) * batch + v * (batch / shards) + i;
}

/* Network input side of a step (counted from 1) when sizes change every 10 steps: one of min, min + apart, ..., max;
 * the last min(200, steps / 20) steps run at max. Source: specs yolov3 section 5.6, where they are 32 apart. */
int multiscale_size(uint64_t seed, int64_t step, int64_t steps, int min, int max, int apart);

/* The canvases of a training. */
struct scales {
    struct canvas nominal;
    int min, max; /* of the longer side: min, min + apart, ..., max; */
    int apart;
    int grain; /* the shorter side is a multiple of it */
};

/* The canvas of a step: the longer side is drawn by multiscale_size(), the shorter one keeps its ratio to it, rounded
 * to the nearest multiple of grain. */
struct canvas scales_canvas(const struct scales *s, uint64_t seed, int64_t step, int64_t steps);
/* No canvas is higher or wider. */
struct canvas scales_largest(const struct scales *s);
