#include "worker/core/arena.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/grow.h"
#include "worker/core/device.h"
#include "worker/core/stress.h"

enum { FIRST_CHUNK = 16 << 20 }; /* for a device with memory of its own */

enum { ARENA_ALIGN = 256 }; /* the choice of an algorithm may depend on the alignment, so all blocks have the same */

/* First fit leaves gaps: in a step of yolov3 a ninth of the peak. So the chunk for whole steps is larger than the peak
 * by GAP_PARTS sixteenths, and by one more each time a step did not fit. */
enum { GAP_PARTS = 2, MOST_GAP_PARTS = 4 };

/* Blocks of all chunks in one list, ascending inside a chunk. `first` marks the first block of a chunk, which is never
 * joined with the one before. */
struct block {
    char *at;
    size_t bytes;
    bool used, first;
    size_t shift; /* first block of a chunk: the unused bytes before it */
};

struct arena {
    struct device *dev;
    size_t chunk_bytes, in_use, peak, held;
    size_t refused; /* size of the chunk that the device refused; 0: it refused nothing */
    int gap_parts;  /* sixteenths of the peak that a whole chunk has in addition */
    struct block *blocks;
    int count;
    size_t room;
    const struct stress *stress; /* NULL: off */
    uint64_t drawn;              /* number of draws from stress so far */
};

struct arena *arena_new(struct device *dev, size_t chunk_bytes)
{
    struct arena *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->dev = dev;
    a->chunk_bytes = chunk_bytes;
    a->gap_parts = GAP_PARTS;
    return a;
}

void arena_stress(struct arena *a, const struct stress *s)
{
    a->stress = s;
}

static void free_chunks(struct arena *a)
{
    for (int i = 0; i < a->count; i++)
        if (a->blocks[i].first)
            a->dev->ops->free(a->dev, a->blocks[i].at - a->blocks[i].shift);
    a->count = 0;
    a->held = 0;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    free_chunks(a);
    free(a->blocks);
    free(a);
}

static size_t round_up(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static bool insert(struct arena *a, int at, struct block b)
{
    if (!GROW(a->blocks, a->room, a->count + 1))
        return false;
    memmove(a->blocks + at + 1, a->blocks + at, (size_t)(a->count - at) * sizeof b);
    a->blocks[at] = b;
    a->count++;
    return true;
}

/* The host takes pages when they are touched, so its chunks may be large. A device takes all at once and ranks may
 * share it: there each chunk only doubles the held memory. */
static size_t chunk_of(const struct arena *a, size_t bytes)
{
    size_t chunk = a->chunk_bytes;

    if (!a->dev->host_memory && a->held < chunk)
        chunk = a->held > FIRST_CHUNK ? a->held : FIRST_CHUNK;
    return bytes > chunk ? bytes : chunk;
}

/* Adds a chunk of that size. Returns false if the memory cannot be had. */
static bool grow_by(struct arena *a, size_t chunk)
{
    size_t shift = a->stress ? stress_shift(a->stress, a->drawn++) : 0;
    char *mem = a->dev->ops->alloc(a->dev, shift + chunk);

    if (!mem)
        return false;
    if (!insert(a, a->count, (struct block){ mem + shift, chunk, false, true, shift })) {
        a->dev->ops->free(a->dev, mem);
        return false;
    }
    a->held += chunk;
    return true;
}

static bool grow(struct arena *a, size_t bytes)
{
    size_t chunk = chunk_of(a, bytes);

    return grow_by(a, chunk) || (chunk > bytes && grow_by(a, bytes));
}

static int find(const struct arena *a, size_t bytes)
{
    for (int i = 0; i < a->count; i++)
        if (!a->blocks[i].used && a->blocks[i].bytes >= bytes)
            return i;
    return -1;
}

/* Returns the block's memory, filled with a pattern under stress. NULL: the device has failed. */
static void *filled(struct arena *a, const struct block *b)
{
    char *at = b->at;

    if (stress_fill(a->stress, a->dev, at, b->bytes, a->drawn++, NULL) >= 0)
        return at;
    arena_release(a, at);
    return NULL;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need = round_up(bytes);
    int i;

    if (need == 0)
        need = ARENA_ALIGN;
    if (a->stress)
        need += stress_gap(a->stress, a->drawn++);
    i = find(a, need);
    if (i < 0) {
        if (!grow(a, need))
            return NULL;
        i = a->count - 1;
    }
    if (a->blocks[i].bytes > need) {
        struct block rest = { a->blocks[i].at + need, a->blocks[i].bytes - need, false, false, 0 };

        if (!insert(a, i + 1, rest))
            return NULL;
        a->blocks[i].bytes = need;
    }
    a->blocks[i].used = true;
    a->in_use += need;
    if (a->in_use > a->peak)
        a->peak = a->in_use;
    return a->stress ? filled(a, &a->blocks[i]) : a->blocks[i].at;
}

/* Joins block i with the next one if both are free and in the same chunk. */
static void join_next(struct arena *a, int i)
{
    if (i < 0 || i + 1 >= a->count || a->blocks[i].used || a->blocks[i + 1].used || a->blocks[i + 1].first)
        return;
    a->blocks[i].bytes += a->blocks[i + 1].bytes;
    memmove(a->blocks + i + 1, a->blocks + i + 2, (size_t)(a->count - i - 2) * sizeof *a->blocks);
    a->count--;
}

void arena_release(struct arena *a, void *ptr)
{
    int i = 0;

    if (!ptr)
        return;
    while (i < a->count && a->blocks[i].at != ptr)
        i++;
    assert(i < a->count && a->blocks[i].used);
    a->blocks[i].used = false;
    a->in_use -= a->blocks[i].bytes;
    join_next(a, i);
    join_next(a, i - 1);
}

/* Makes every chunk one free block again. */
static void release_all(struct arena *a)
{
    int kept = 0;

    for (int i = 0; i < a->count; i++) {
        struct block b = a->blocks[i];

        b.used = false;
        if (b.first)
            a->blocks[kept++] = b;
        else
            a->blocks[kept - 1].bytes += b.bytes;
    }
    a->count = kept;
    a->in_use = 0;
}

/* Replaces several chunks, with unused tails, by one chunk for whole steps. Its size follows from the peak of all
 * steps, so it stays once the largest step was seen. The old chunks are freed first: memory may not hold both. */
static void make_whole(struct arena *a)
{
    size_t largest = 0, bytes;

    for (int i = 0; i < a->count; i++)
        largest = a->blocks[i].bytes > largest ? a->blocks[i].bytes : largest;
    if (largest >= a->peak && a->gap_parts < MOST_GAP_PARTS)
        a->gap_parts++;
    bytes = round_up(a->peak + a->peak / 16 * (size_t)a->gap_parts);
    if (bytes <= largest || (a->refused > 0 && bytes >= a->refused))
        return;
    free_chunks(a);
    if (!grow_by(a, bytes))
        a->refused = bytes; /* the next step uses several chunks again */
}

void arena_reset(struct arena *a)
{
    release_all(a);
    if (a->count > 1)
        make_whole(a);
}

size_t arena_peak(const struct arena *a)
{
    return a->peak;
}

size_t arena_held(const struct arena *a)
{
    return a->held;
}
