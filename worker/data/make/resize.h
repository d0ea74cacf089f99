/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/resize.h - pictures made larger or smaller, bytes to
 * bytes, and their new size for a given shorter side. Pure; a picture's bits depend on nothing but its pixels and
 * sizes. Source: specs rcnn section 1.3, featdepth section 4.2. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/canvas.h"

/* The program with the same arithmetic:
 *   RESIZE_D2  detectron2's. Sizes round to the nearest; a triangle as wide as the step where it shrinks, first to the
 *              new width and then to the new height, each in fixed point and rounded to bytes: the bits of Pillow's
 *              BILINEAR. Mirrored afterwards. Masks take the pixel at each centre.
 *   RESIZE_TV  torchvision's, from 0.15 on. Sides are cut to whole pixels; four neighbours, no antialiasing, in
 *              float32. Mirrored before. The reference continues with numbers between 0 and 1. Here the result is
 *              rounded to the nearest byte, so a value is off by half a level at most, which moves the scores of boxes
 *              by .013 at most. Masks take the pixel at each corner.
 *   RESIZE_LANCZOS  FeatDepth's. Like RESIZE_D2, by sinc(x) sinc(x / 3), which reaches three steps to either side: the
 *              bits of Pillow's LANCZOS. For pictures of a given size, without masks. */
enum resize_rule { RESIZE_D2, RESIZE_TV, RESIZE_LANCZOS };

/* Size of an h x w picture after its shorter side becomes `shorter`, or less if the longer one would pass `longest`; at
 * least one pixel each way, and no side over `longest`. */
struct canvas resize_target(enum resize_rule rule, int h, int w, int shorter, int longest);

struct resizing {
    enum resize_rule rule;
    int h, w; /* of the picture */
    struct canvas to;
    bool flip; /* left-right */
};

/* Bytes of scratch memory that resize() needs. */
size_t resize_scratch(const struct resizing *z);
/* rgb [h][w][3] -> out, rows of to.w pixels that begin `pitch` bytes apart. scratch must be aligned like malloc()'s
 * memory. */
void resize(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch);
/* The same by the build for any processor; tests compare its bits with those of resize(). */
void resize_any(const struct resizing *z, const uint8_t *rgb, uint8_t *out, size_t pitch, void *scratch);

/* In a mask: the picture's row for row u of the result, and the same for columns; ascending in u. */
int resize_nearest_row(const struct resizing *z, int u);
int resize_nearest_column(const struct resizing *z, int t); /* mirrored if the picture is; then descending */
