/* SPDX-License-Identifier: Apache-2.0 */ /* worker/cpu/overlap.h - many boxes against one: their overlap with it, and
 * suppression. Loops that the compiler turns into vectors; each box is a lane, so the bits are those of the bodies. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/kernels/delta.h"

/* Boxes side by side, in one array per number. */
struct overlap_boxes {
    float *x1, *y1, *x2, *y2, *area;
};

enum { OVERLAP_FLOATS = 5 }; /* of a box */

/* Cuts the arrays from memory of OVERLAP_FLOATS * n floats. */
struct overlap_boxes overlap_boxes(float *memory, size_t n);
void overlap_set(const struct overlap_boxes *b, size_t i, struct box box);
/* Overlap of boxes [from, to) with an image's box, number t: if it is larger, raises best and puts t into arg
 * (rpn_iou()). Returns the largest. */
float overlap_match(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, int32_t t, float *best, int32_t *arg);
/* mark[i] |= 1 if box i overlaps by exactly `peak`. */
void overlap_equal(const struct overlap_boxes *b, size_t from, size_t to, struct box truth, float peak, int32_t *mark);
/* Greedy suppression of n boxes, best first: the places of the kept boxes go to keep, at most `most` of them. gone: [n]
 * working memory, not 0 for a box that is out from the beginning. Returns the number of kept boxes. */
size_t overlap_suppress(const struct overlap_boxes *b, size_t n, int32_t *gone, float thresh, size_t most, int32_t *keep);
