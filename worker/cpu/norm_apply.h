/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/norm_apply.h - the gradient of what a normalisation read: written as a whole by cpu_norm_bwd_apply(), or a piece at a time, with the same bits, by
 * who reads it once and has no other use for it. */
#pragma once
#include "worker/ops/norm.h"

/* The means that norm_dx() takes, of all channels of all shards, shard by shard; none of frozen statistics. */
size_t norm_means_count(const struct norm_grad *g, int nshards);
void norm_means(const struct norm_grad *g, int nshards, float *ret);

/* h rows of w pixels of a shard, which lie `pitch` pixels apart, from pixel `first` of all its images on; channels [k, k + cols). */
struct norm_piece {
    int shard;
    size_t first;
    int h, w, pitch, k, cols;
};

/* To [h][w] pixels that are `step` numbers of the shard's dtype apart. means: of norm_means(). */
void norm_apply_piece(const struct norm_grad *g, const float *means, const struct norm_piece *p, void *to, ptrdiff_t step);
