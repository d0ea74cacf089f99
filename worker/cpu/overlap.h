/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/overlap.h - many boxes against one: how far they overlap, which of them are suppressed. Loops that the compiler turns into vectors; each box
 * is a lane, so the bits are those of the bodies. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/kernels/delta.h"

/* Boxes side by side, and what they are matched to. */
struct overlap_boxes {
    float *x1, *y1, *x2, *y2, *area;
};

enum { OVERLAP_FLOATS = 5 }; /* of a box */

/* Cut from memory of OVERLAP_FLOATS * n floats. */
struct overlap_boxes overlap_boxes(float *memory, size_t n);
void overlap_set(const struct overlap_boxes *b, size_t i, struct box box);
/* Of boxes [from, to) with a box of an image, its number t: raises best and puts t into arg where it is more (rpn_iou()). Returns the largest. */
float overlap_match(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, int32_t t, float *best, int32_t *arg);
/* mark[i] |= 1 where box i overlaps exactly `peak`. */
void overlap_equal(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, float peak, int32_t *mark);
/* Greedy suppression of n boxes, best first: the places of those that are kept go to keep, at most `most` of them. gone: [n] working memory, not 0 where
 * a box is out from the beginning. Returns how many are kept. */
size_t overlap_suppress(const struct overlap_boxes *b, size_t n, int32_t *gone, float thresh, size_t most, int32_t *keep);
