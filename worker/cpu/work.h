/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/work.h - for operations that go image by image: the image of a
 * number of work, and its part of the working memory. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "worker/core/carve.h"
#include "worker/ops/rpn.h"

/* Working memory of units of work that run at once: one a unit if there are fewer units than threads, else one a
 * thread. */
struct slots {
    size_t n;
    bool by_unit;
};

static inline struct slots slots_for(size_t units, size_t threads)
{
    return (struct slots){ units < threads ? units : threads, units < threads };
}

static inline size_t slot_of(struct slots s, size_t unit, int thread)
{
    return s.by_unit ? unit : (size_t)thread;
}

/* Shard and image of the index-th of all images. */
static inline int shard_of_image(const struct rcnn_images *images, size_t index, int *ret_image)
{
    int v = 0;

    for (; index >= (size_t)images[v].n; v++)
        index -= (size_t)images[v].n;
    *ret_image = (int)index;
    return v;
}

static inline size_t count_images(const struct rcnn_images *images, int nshards)
{
    size_t n = 0;

    for (int v = 0; v < nshards; v++)
        n += (size_t)images[v].n;
    return n;
}

/* The number of a shard's first image. */
static inline size_t first_image(const struct rcnn_images *images, int shard)
{
    return count_images(images, shard);
}
