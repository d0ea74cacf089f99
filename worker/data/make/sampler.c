#include "worker/data/make/sampler.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/core/philox.h"

/* Holds two epochs, since a batch may contain the end of one and the start of the next. */
struct sampler {
    uint64_t seed;
    int32_t samples;
    int64_t epoch[2]; /* -1: not computed yet */
    int32_t *order[2];
    const uint8_t *group; /* NULL: no groups */
    int shard_images;
    int32_t *drawn;   /* [samples]: the order before grouping */
    int32_t *waiting; /* [SAMPLER_MAX_GROUPS][shard_images] */
};

int sampler_new(uint64_t seed, int32_t samples, struct sampler **ret_sampler, struct err *err)
{
    struct sampler *s = calloc(1, sizeof *s);

    if (samples < 1) {
        free(s);
        return err_set(err, ERR_DATA, "a data set without samples cannot be shuffled");
    }
    if (!s)
        return err_set(err, -ENOMEM, "no memory for the order of %d samples", samples);
    s->seed = seed;
    s->samples = samples;
    for (int i = 0; i < 2; i++) {
        s->epoch[i] = -1;
        s->order[i] = malloc((size_t)samples * sizeof *s->order[i]);
        if (!s->order[i]) {
            sampler_free(s);
            return err_set(err, -ENOMEM, "no memory for the order of %d samples", samples);
        }
    }
    *ret_sampler = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->order[0]);
    free(s->order[1]);
    free(s->drawn);
    free(s->waiting);
    free(s);
}

/* Swaps entries q = n - 1 .. 1 with an entry in [0, q], drawn from word q of the epoch's stream. */
void sampler_order(uint64_t seed, int64_t epoch, int32_t samples, int32_t *ret)
{
    struct philox_key key = { .seed = seed, .step = (uint32_t)epoch, .op = philox_op("data.order") };
    uint32_t words[4];
    int64_t block = -1;

    for (int32_t i = 0; i < samples; i++)
        ret[i] = i;
    for (int32_t q = samples - 1; q > 0; q--) {
        if (block != q / 4) {
            block = q / 4;
            philox_block(&key, (uint64_t)block, words);
        }
        int32_t with = (int32_t)((uint64_t)words[q % 4] * ((uint64_t)q + 1) >> 32), kept = ret[q];

        ret[q] = ret[with];
        ret[with] = kept;
    }
}

int sampler_group(struct sampler *s, const uint8_t *group, int shard_images, struct err *err)
{
    s->drawn = malloc((size_t)s->samples * sizeof *s->drawn);
    s->waiting = malloc((size_t)SAMPLER_MAX_GROUPS * (size_t)shard_images * sizeof *s->waiting);
    if (!s->drawn || !s->waiting)
        return err_set(err, -ENOMEM, "no memory for the order of %d samples", s->samples);
    s->group = group;
    s->shard_images = shard_images;
    return 0;
}

/* The number of places at the start of an epoch that complete a shard of the epoch before: -epoch * samples modulo the
 * images of a shard. */
static int32_t places_before(const struct sampler *s, int64_t epoch)
{
    int64_t b = s->shard_images, begun = epoch % b * (s->samples % b) % b, left = (b - begun) % b;

    return left < s->samples ? (int32_t)left : s->samples;
}

static void group_order(struct sampler *s, int64_t epoch, int32_t *ret)
{
    int32_t to = places_before(s, epoch);
    int waiting[SAMPLER_MAX_GROUPS] = { 0 }, b = s->shard_images;

    memcpy(ret, s->drawn, (size_t)to * sizeof *ret);
    for (int32_t i = to; i < s->samples; i++) {
        int g = s->group[s->drawn[i]];
        int32_t *of = s->waiting + (size_t)g * (size_t)b;

        of[waiting[g]++] = s->drawn[i];
        if (waiting[g] == b) {
            memcpy(ret + to, of, (size_t)b * sizeof *ret);
            to += b;
            waiting[g] = 0;
        }
    }
    for (int g = 0; g < SAMPLER_MAX_GROUPS; g++) {
        memcpy(ret + to, s->waiting + (size_t)g * (size_t)b, (size_t)waiting[g] * sizeof *ret);
        to += waiting[g];
    }
}

static void make_order(struct sampler *s, int64_t epoch, int32_t *ret)
{
    sampler_order(s->seed, epoch, s->samples, s->group ? s->drawn : ret);
    if (s->group)
        group_order(s, epoch, ret);
}

struct draw sampler_at(struct sampler *s, int64_t position)
{
    int64_t epoch = position / s->samples;
    int k = (int)(epoch & 1);

    if (s->epoch[k] != epoch) {
        make_order(s, epoch, s->order[k]);
        s->epoch[k] = epoch;
    }
    return (struct draw){ .epoch = epoch, .sample = s->order[k][position % s->samples] };
}

static uint64_t splitmix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

int multiscale_size(uint64_t seed, int64_t step, int64_t steps, int min, int max, int apart)
{
    int64_t at_end = steps / 20 < 200 ? steps / 20 : 200;
    uint64_t k = (uint64_t)(step - 1) / 10, sizes = (uint64_t)((max - min) / apart) + 1;

    if (step > steps - at_end)
        return max;
    return min + apart * (int)((splitmix(seed + (k + 1) * 0x9e3779b97f4a7c15) >> 32) * sizes >> 32);
}

static struct canvas with_long_side(const struct scales *s, int side)
{
    struct canvas c = s->nominal;
    int64_t longer = canvas_long_side(c), shorter = c.w > c.h ? c.h : c.w, grains;
    int rounded;

    if (side == longer)
        return c;
    if (c.w == c.h)
        return (struct canvas){ side, side };
    grains = (2 * shorter * side / longer + s->grain) / (2 * s->grain);
    rounded = (int)(grains < 1 ? 1 : grains) * s->grain;
    return c.w > c.h ? (struct canvas){ rounded, side } : (struct canvas){ side, rounded };
}

struct canvas scales_canvas(const struct scales *s, uint64_t seed, int64_t step, int64_t steps)
{
    return with_long_side(s, s->min < s->max ? multiscale_size(seed, step, steps, s->min, s->max, s->apart) : s->max);
}

struct canvas scales_largest(const struct scales *s)
{
    return with_long_side(s, s->max);
}
