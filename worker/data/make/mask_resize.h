/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/mask_resize.h - a mask as run lengths, in a picture of another size (resize.h). Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/data/make/resize.h"

/* How often the runs of ones of a mask of h rows meet a column; memory and results are bounded by it. */
int64_t mask_column_parts(const int32_t *run, int64_t n, int h);
/* Most runs that mask_resize() makes of so many parts, in a picture that became to_w wide from w. */
int64_t mask_resized_most(int64_t parts, int w, int to_w);
/* Bytes of scratch memory for a mask of so many parts. */
size_t mask_resize_scratch(int64_t parts, const struct resizing *z);
/* The runs (zeros first, down the columns) of n runs that fill z->h x z->w pixels, in a picture of z->to. Only the first and those behind a pixel's
 * change are there: none but the first is 0 long, and a mask without a pixel is one run. Writes `room` at most. Returns how many there are. */
int64_t mask_resize(const int32_t *run, int64_t n, const struct resizing *z, void *scratch, int32_t *ret, int64_t room);
