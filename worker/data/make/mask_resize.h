/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/mask_resize.h - a mask as run lengths, resized with its
 * picture (resize.h). Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/data/make/resize.h"

/* Number of parts: pieces of the mask's runs of ones within single columns of h rows. It bounds memory and results. */
int64_t mask_column_parts(const int32_t *run, int64_t n, int h);
/* Largest number of runs that mask_resize() makes of so many parts, in a picture that became to_w wide from w. */
int64_t mask_resized_most(int64_t parts, int w, int to_w);
/* Bytes of scratch memory for a mask of so many parts. */
size_t mask_resize_scratch(int64_t parts, const struct resizing *z);
/* Resizes n runs (zeros first, down the columns) that fill z->h x z->w pixels to a picture of z->to. A new run begins
 * only where the pixel changes: only the first may have length 0, and a mask without a pixel is one run. Writes at most
 * `room` runs. Returns their number. */
int64_t mask_resize(const int32_t *run, int64_t n, const struct resizing *z, void *scratch, int32_t *ret, int64_t room);
