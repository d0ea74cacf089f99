/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/arena.h - device memory of a step: activations and gradients
 * come and go, their chunks stay. First fit over address-ordered blocks: the same sequence of sizes gives the same
 * offsets, so in the steady state nothing is allocated. On a CUDA device the chunks are plain device allocations; the
 * order of alloc and release is host order on one stream, which is safe there too. */
#pragma once
#include <stddef.h>

struct arena;
struct device;
struct stress;

/* Memory is taken from the device in chunks of about chunk_bytes, smaller ones at first on devices with memory of their
 * own. NULL: out of memory. Caller frees. */
struct arena *arena_new(struct device *dev, size_t chunk_bytes);
void arena_free(struct arena *a);
/* From now on blocks begin at drawn places and are filled with numbers that must not be read. s is borrowed. Must come
 * before the first arena_alloc(). */
void arena_stress(struct arena *a, const struct stress *s);
/* 256-byte aligned, contents undefined. NULL: the device has no more memory. */
void *arena_alloc(struct arena *a, size_t bytes);
/* Gives one allocation back. NULL is ignored. */
void arena_release(struct arena *a, void *ptr);
/* Gives everything back to the arena: the start of a step. If the last step took several chunks, one chunk replaces
 * them. It holds the largest step so far and is at most a quarter larger than its peak. Only work queued before may
 * still use the memory. */
void arena_reset(struct arena *a);
/* Most bytes ever in use at once, and bytes held from the device. */
size_t arena_peak(const struct arena *a);
size_t arena_held(const struct arena *a);
