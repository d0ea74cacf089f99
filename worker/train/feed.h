/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/feed.h - batches of a loader as device memory. On a device
 * with its own memory the next batch travels on a separate queue while the present one is computed, so that no step
 * waits for it. On the CPU the loader's memory is used directly. */
#pragma once
#include "worker/data/make/batch.h"

struct device;
struct err;
struct feed;
struct loader;

/* dev computes; side is another queue of the same backend, used only by this feed. The loader must have been opened
 * with memory of dev. All three stay the caller's and outlive the feed. NULL: out of memory. */
struct feed *feed_open(struct device *dev, struct device *side, struct loader *loader);
/* NULL is ignored. */
void feed_close(struct feed *f);
/* Like loader_next(), LOADER_END included, with arrays and lists in device memory that ops queued on dev may read. It
 * holds until the next call. */
int feed_next(struct feed *f, struct batch *ret, struct err *err);
/* The shards of that batch, with arrays and lists in host memory. Valid until the next feed_next() or feed_ahead(). */
const struct shard_batch *feed_host(const struct feed *f);
/* To be called when all ops that read the batch are queued. Its memory may be used again, and the next batch is sent
 * ahead if it is decoded, without waiting. An error appears in the next feed_next(). */
void feed_ahead(struct feed *f);
/* Validation: drops batches sent ahead; the loader starts a new pass. */
void feed_rewind(struct feed *f);
