/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/norm_apply.h - the gradient of a normalisation's input.
 * cpu_norm_bwd_apply() writes it as a whole; a reader that needs it only once makes it piece by piece, with the same
 * bits. */
#pragma once
#include "worker/ops/norm.h"

/* The means for norm_dx(), of all channels of all shards, shard by shard; 0 for frozen statistics. */
size_t norm_means_count(const struct norm_grad *g, int nshards);
void norm_means(const struct norm_grad *g, int nshards, float *ret);

/* h rows of w pixels of a shard, `pitch` pixels apart, from pixel `first` of all its images on; channels [k, k +
 * cols). */
struct norm_piece {
    int shard;
    size_t first;
    int h, w, pitch, k, cols;
};

/* Writes to [h][w] pixels that are `step` numbers of the shard's dtype apart. means: from norm_means(). */
void norm_apply_piece(const struct norm_grad *g, const float *means, const struct norm_piece *p, void *to, ptrdiff_t step);
