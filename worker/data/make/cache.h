/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/cache.h - decoded pictures of a data set kept in memory up
 * to a limit. Pictures are kept first come, first kept, and never thrown out: over an epoch every picture is needed
 * equally often. The cache keeps the decoder's own bits, so no result can depend on it. Thread-safe. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cache;

/* Caller frees. NULL: out of memory. limit_bytes 0: a cache that keeps nothing. */
struct cache *cache_new(int pictures, size_t limit_bytes);
void cache_free(struct cache *c);
/* The picture's pixels, valid until cache_free(), or NULL. */
const uint8_t *cache_get(struct cache *c, int picture);
/* Copies size bytes in if there is room. Never fails: keeping nothing is always right. */
void cache_put(struct cache *c, int picture, const uint8_t *rgb, size_t size);
