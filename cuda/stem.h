/* SPDX-License-Identifier: Apache-2.0 */ /* cuda/stem.h - the convolution that reads images, the first layer of a
 * detector: 3x3 with stride 1 over three channels.
 *
 * The libraries pad the three channels to eight or more first, and their tensor cores multiply zeros. For
 * [16,416,416,3] to 32 channels in bf16 on an H100, the best engine of cuDNN 9.19 took 454 us forward and 288 us for
 * the weight gradient. Reading and writing the tensors once takes 65 us, and the 2.4 G multiply-adds 75 us without
 * tensor cores. The plugin's own kernels therefore work without them. They sum in fp32, in an order given by the shape
 * alone, in all tiers and precisions; the weight gradient is not rounded to bf16. */
#pragma once
#include "cuda/plan_key.h"

enum {
    STEM_C = 3, /* channels of the images */
    STEM_TAP = 3,
    STEM_GROUP = 8, /* output channels of a thread */
    STEM_K_MAX = 64,
    STEM_TILE_W = 32, /* output pixels of a tile */
    STEM_TILE_H = 8,
    STEM_SLAB = 4,  /* tiles that one block sums for the weight gradients */
    STEM_FOLD = 128 /* slabs that one block of the tree adds */
};

static inline size_t stem_tiles(const struct conv_key *k)
{
    size_t across = ((size_t)plan_key_out_w(k) + STEM_TILE_W - 1) / STEM_TILE_W;

    return (size_t)k->n * across * (((size_t)plan_key_out_h(k) + STEM_TILE_H - 1) / STEM_TILE_H);
}

static inline size_t stem_slabs(const struct conv_key *k)
{
    return (stem_tiles(k) + STEM_SLAB - 1) / STEM_SLAB;
}

/* Can stem_run() compute this convolution? */
static inline bool stem_takes(const struct plan_key *key)
{
    const struct conv_key *k = &key->conv;
    size_t in = (size_t)k->n * (size_t)k->h * (size_t)k->w * STEM_C, most = (size_t)1 << 31;

    return k->dir != CONV_BWD_DATA && k->c == STEM_C && k->r == STEM_TAP && k->s == STEM_TAP && k->stride == 1 && k->k % STEM_GROUP == 0 &&
           k->k <= STEM_K_MAX && k->x_stride == k->c && k->y_stride == k->k && key->align_y == PLAN_ALIGN && in < most &&
           (size_t)k->n * (size_t)plan_key_out_h(k) * (size_t)plan_key_out_w(k) * (size_t)k->k < most;
}

/* Bytes: the slabs' sums, and the sums of the tree's first round. */
static inline size_t stem_workspace(const struct conv_key *k)
{
    size_t slabs = stem_slabs(k);

    if (k->dir == CONV_FWD)
        return 0;
    return (slabs + (slabs + STEM_FOLD - 1) / STEM_FOLD) * (size_t)k->k * STEM_TAP * STEM_TAP * STEM_C * sizeof(float);
}

#ifdef __cplusplus
extern "C" {
#endif
/* Queues a convolution that stem_takes(). workspace: 16-byte aligned. */
int stem_run(const struct conv_key *k, const struct conv_args *args, void *workspace, cudaStream_t stream, struct err *err);
#ifdef __cplusplus
}
#endif
