/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/batches.h - a batch of the task "boxes" by hand, from pictures
 * and boxes in device memory. */
#pragma once
#include "worker/data/sample/boxes.h"
#include "worker/ops/yolo.h"

/* shard: [n], written; the batch borrows it. x: [n] f32; truth: [n]. */
static inline struct batch boxes_batch(struct shard_batch *shard, const struct tensor *x, const struct box_list *truth, int n)
{
    const struct batch_form *f = task_boxes.form;
    int list = batch_list_of(f, "truth");

    for (int v = 0; v < n; v++) {
        shard[v] = (struct shard_batch){ .shard = v, .n = x[v].n, .canvas = { x[v].h, x[v].w } };
        shard[v].array[batch_array_of(f, "image")] = x[v].data;
        shard[v].array[batch_array_of(f, "truth.class")] = (void *)(uintptr_t)truth[v].cls;
        shard[v].array[batch_array_of(f, "truth.box")] = (void *)(uintptr_t)truth[v].box;
        shard[v].offset[list] = (int32_t *)(uintptr_t)truth[v].offset;
        shard[v].rows[list] = truth[v].rows;
    }
    return (struct batch){ .form = f, .nshards = n, .shard = shard };
}
