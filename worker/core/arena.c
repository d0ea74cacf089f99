#include "worker/core/arena.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/device.h"

enum { FIRST_CHUNK = 16 << 20 }; /* of a device with memory of its own */

enum { ARENA_ALIGN = 256 }; /* the choice of an algorithm may depend on the alignment, so it is the same for all */

/* Blocks of all chunks in one list, ascending inside a chunk; `first` marks a chunk's first block, which is never merged backwards. */
struct block {
    char *at;
    size_t bytes;
    bool used, first;
};

struct arena {
    struct device *dev;
    size_t chunk_bytes, in_use, peak, held;
    struct block *blocks;
    int count, room;
};

struct arena *arena_new(struct device *dev, size_t chunk_bytes)
{
    struct arena *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->dev = dev;
    a->chunk_bytes = chunk_bytes;
    return a;
}

void arena_free(struct arena *a)
{
    if (!a)
        return;
    for (int i = 0; i < a->count; i++)
        if (a->blocks[i].first)
            a->dev->ops->free(a->dev, a->blocks[i].at);
    free(a->blocks);
    free(a);
}

static bool insert(struct arena *a, int at, struct block b)
{
    if (a->count == a->room) {
        int room = a->room ? 2 * a->room : 64;
        struct block *more = realloc(a->blocks, (size_t)room * sizeof *more);

        if (!more)
            return false;
        a->blocks = more;
        a->room = room;
    }
    memmove(a->blocks + at + 1, a->blocks + at, (size_t)(a->count - at) * sizeof b);
    a->blocks[at] = b;
    a->count++;
    return true;
}

/* The host gives pages when they are touched; a device gives all at once, and ranks may share it, so there a chunk doubles what is held. */
static size_t chunk_of(const struct arena *a, size_t bytes)
{
    size_t chunk = a->chunk_bytes;

    if (!a->dev->host_memory && a->held < chunk)
        chunk = a->held > FIRST_CHUNK ? a->held : FIRST_CHUNK;
    return bytes > chunk ? bytes : chunk;
}

static bool grow(struct arena *a, size_t bytes)
{
    size_t chunk = chunk_of(a, bytes);
    char *mem = a->dev->ops->alloc(a->dev, chunk);

    if (!mem && chunk > bytes) {
        chunk = bytes;
        mem = a->dev->ops->alloc(a->dev, chunk);
    }
    if (!mem)
        return false;
    if (!insert(a, a->count, (struct block){ mem, chunk, false, true })) {
        a->dev->ops->free(a->dev, mem);
        return false;
    }
    a->held += chunk;
    return true;
}

static int find(const struct arena *a, size_t bytes)
{
    for (int i = 0; i < a->count; i++)
        if (!a->blocks[i].used && a->blocks[i].bytes >= bytes)
            return i;
    return -1;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    int i;

    if (need == 0)
        need = ARENA_ALIGN;
    i = find(a, need);
    if (i < 0) {
        if (!grow(a, need))
            return NULL;
        i = a->count - 1;
    }
    if (a->blocks[i].bytes > need) {
        struct block rest = { a->blocks[i].at + need, a->blocks[i].bytes - need, false, false };

        if (!insert(a, i + 1, rest))
            return NULL;
        a->blocks[i].bytes = need;
    }
    a->blocks[i].used = true;
    a->in_use += need;
    if (a->in_use > a->peak)
        a->peak = a->in_use;
    return a->blocks[i].at;
}

/* Joins block i with the one after it if both are free and of one chunk. */
static void merge_next(struct arena *a, int i)
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
    merge_next(a, i);
    merge_next(a, i - 1);
}

void arena_reset(struct arena *a)
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

size_t arena_peak(const struct arena *a)
{
    return a->peak;
}

size_t arena_held(const struct arena *a)
{
    return a->held;
}
