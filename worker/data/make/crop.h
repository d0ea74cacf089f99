/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/crop.h - a part cut out of a picture that trains: the
 * picture gets a shorter side of 400, 500 or 600 pixels and perhaps is mirrored; then a window of 384 to 600 pixels
 * each way, or as much as there is, is cut out. Pictures whose longer side would become over 16384 pixels stay whole,
 * which bounds memory; the reference has no limit. Specs sparse_rcnn section 8. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/data/make/resize.h"

struct dataset_box;

enum { CROP_LEAST = 384, CROP_MOST = 600 }; /* pixels of a window's sides */

struct crop {
    struct resizing scaled; /* before the cut */
    int y, x;               /* top left pixel of the window */
    struct canvas window;
};

/* Draws whether an h x w picture is cut in this epoch, and how. Pure: by the seed, epoch and image. */
bool crop_draw(float prob, uint64_t seed, int64_t epoch, int32_t image, int h, int w, bool flip, struct crop *ret);
/* Bytes of the picture before the cut. */
size_t crop_bytes(const struct crop *c);
/* Cuts: rgb becomes the window [window.h][window.w][3]. */
void crop_cut(const struct crop *c, uint8_t *rgb);
/* A box of the stored picture -> its part of the window, in pixels of the window. False: no side, or one up to 1e-5
 * pixels. */
bool crop_box(const struct crop *c, const struct dataset_box *b, struct dataset_box *ret);
