#include "worker/core/stress.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <string.h>
#include <time.h>

#include "proto/hash/hash_mix.h"
#include "worker/core/device.h"

enum { ALIGN = 256, PATTERN_BYTES = 4096, RARELY = 4 };

/* The purpose of a draw. Each has draws of its own. */
enum purpose { SHIFT, GAP, FILL, NOISE, ORDER, TURNS, PAUSE, ARRIVE };

static uint64_t draw(uint64_t seed, enum purpose p, uint64_t a, uint64_t b)
{
    uint64_t h = hash_mix(seed + ((uint64_t)p + 1) * HASH_GAMMA, HASH_MUL_0);

    return hash_mix(hash_mix(h ^ a, HASH_MUL_1) ^ b, HASH_MUL_0);
}

static uint64_t draw_of_rank(const struct stress *s, enum purpose p, uint64_t n)
{
    return draw(s->seed, p, (uint64_t)s->rank, n);
}

/* ---- memory ---- */

size_t stress_shift(const struct stress *s, uint64_t n)
{
    return (size_t)(draw_of_rank(s, SHIFT, n) % (STRESS_SHIFT / ALIGN)) * ALIGN;
}

size_t stress_gap(const struct stress *s, uint64_t n)
{
    return (size_t)(draw_of_rank(s, GAP, n) % (STRESS_GAP / ALIGN)) * ALIGN;
}

static void make_pattern(const struct stress *s, uint64_t n, uint64_t *words)
{
    static const uint64_t plain[] = { 0, UINT64_MAX, 0x7FA07FA07FA07FA0u };
    uint64_t which = draw_of_rank(s, FILL, n) % (sizeof plain / sizeof *plain + 1);

    for (size_t i = 0; i < PATTERN_BYTES / sizeof *words; i++)
        words[i] = which < sizeof plain / sizeof *plain ? plain[which] : draw_of_rank(s, NOISE, n + (i << 32));
}

/* Uploads a pattern, then doubles it on the device until ptr is filled. */
int stress_fill(const struct stress *s, struct device *dev, void *ptr, size_t bytes, uint64_t n, struct err *err)
{
    uint64_t words[PATTERN_BYTES / sizeof(uint64_t)];
    size_t have = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
    int rc;

    make_pattern(s, n, words);
    rc = dev->ops->upload(dev, ptr, words, have, err);
    for (size_t more; rc >= 0 && have < bytes; have += more) {
        more = bytes - have < have ? bytes - have : have;
        rc = dev->ops->copy_async(dev, (char *)ptr + have, ptr, more, err);
    }
    return rc;
}

/* ---- order ---- */

static void shuffle(uint64_t seed, enum purpose p, uint64_t key, int n, int *v)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(draw(seed, p, key, (uint64_t)i) % (uint64_t)(i + 1)), t = v[i];

        v[i] = v[k];
        v[k] = t;
    }
}

void stress_order(const struct stress *s, uint64_t key, int n, int *ret_order)
{
    for (int i = 0; i < n; i++)
        ret_order[i] = i;
    shuffle(s->seed, ORDER, key, n, ret_order);
}

void stress_turns(const struct stress *s, uint64_t key, int n, int group, int *ret_turn)
{
    for (int i = 0; i < n; i++)
        ret_turn[i] = i;
    for (int lo = 0; lo < n; lo += group)
        shuffle(s->seed, TURNS, draw(s->seed, TURNS, key, (uint64_t)lo), n - lo < group ? n - lo : group, ret_turn + lo);
}

static void sleep_us(uint64_t us)
{
    struct timespec ts = { (time_t)(us / 1000000), (long)(us % 1000000) * 1000 };

    nanosleep(&ts, NULL);
}

/* At most `most`; mostly 0, since one step has many pauses. */
static uint64_t seldom(uint64_t drawn, uint64_t most)
{
    return drawn % RARELY ? 0 : drawn / RARELY % (most + 1);
}

void stress_pause(const struct stress *s, uint64_t n)
{
    uint64_t us = seldom(draw_of_rank(s, PAUSE, n), STRESS_LOADER_US);

    if (us)
        sleep_us(us);
}

uint64_t stress_late_us(const struct stress *s, int channel, uint32_t number)
{
    uint64_t key = ((uint64_t)channel << 32) | number, most = seldom(draw(s->seed, ARRIVE, key, 0), STRESS_ARRIVE_US);
    uint64_t place = 0;

    if (most == 0 || s->ranks < 2)
        return 0;
    for (int r = 0; r < s->ranks; r++) /* rank's place among the draws of all ranks; equal draws do no harm */
        place += draw(s->seed, ARRIVE, key, (uint64_t)r + 1) < draw(s->seed, ARRIVE, key, (uint64_t)s->rank + 1);
    return most * place / (uint64_t)(s->ranks - 1);
}

void stress_arrive(const struct stress *s, int channel, uint32_t number)
{
    uint64_t us = stress_late_us(s, channel, number);

    if (us)
        sleep_us(us);
}
