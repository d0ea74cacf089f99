/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/feed.h - batches of a loader as device memory. On a device with memory of its own the next batch travels on a queue of its
 * own while the present one is computed, so that the way to the device is not waited for; on the CPU the loader's memory is used as it
 * is. */
#pragma once
#include "worker/data/make/batch.h"

struct device;
struct err;
struct feed;
struct loader;

/* dev computes; side is another queue of the same backend that this feed alone uses. The loader must have been opened with memory of dev.
 * All three stay the caller's and outlive the feed. NULL: out of memory. */
struct feed *feed_open(struct device *dev, struct device *side, struct loader *loader);
/* NULL is nothing. */
void feed_close(struct feed *f);
/* As loader_next(), LOADER_END included, with arrays and lists in device memory that ops queued on dev may read. It holds until the next call. */
int feed_next(struct feed *f, struct batch *ret, struct err *err);
/* All ops that read the batch are queued: its memory may be used again, and the next batch is sent ahead if it is decoded; this is not waited
 * for. An error shows in the next feed_next(). */
void feed_ahead(struct feed *f);
/* Validation: what was sent ahead is dropped, the loader starts a new pass. */
void feed_rewind(struct feed *f);
