#include "worker/data/make/cache.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct cache {
    int pictures;
    size_t limit;
    atomic_size_t used;
    _Atomic(uint8_t *) rgb[]; /* [pictures]; NULL: not in the cache */
};

struct cache *cache_new(int pictures, size_t limit_bytes)
{
    struct cache *c = calloc(1, sizeof *c + (size_t)pictures * sizeof c->rgb[0]);

    if (c) {
        c->pictures = pictures;
        c->limit = limit_bytes;
    }
    return c;
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->pictures; i++)
        free(atomic_load(&c->rgb[i]));
    free(c);
}

const uint8_t *cache_get(struct cache *c, int picture)
{
    return atomic_load_explicit(&c->rgb[picture], memory_order_acquire);
}

void cache_put(struct cache *c, int picture, const uint8_t *rgb, size_t size)
{
    uint8_t *copy, *none = NULL;

    if (atomic_fetch_add(&c->used, size) + size > c->limit) {
        atomic_fetch_sub(&c->used, size);
        return;
    }
    copy = malloc(size);
    if (copy)
        memcpy(copy, rgb, size);
    /* another thread may have decoded the same picture; then this copy is freed */
    if (!copy || !atomic_compare_exchange_strong(&c->rgb[picture], &none, copy)) {
        free(copy);
        atomic_fetch_sub(&c->used, size);
    }
}
