/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/masks/mask_paste.h - a mask head's square maps of
 * probabilities, laid over their boxes in a picture: gives the pixels of the objects. Pure. Source: specs rcnn section
 * 6.3. */
#pragma once
#include "worker/eval/result.h"

struct err;
struct mask_paster;

enum mask_paste {
    /* d2: the map is sampled at each pixel's middle, with 0 around it; at least one half is the object */
    MASK_PASTE_HALF_PIXEL,
    /* tv: the map with a rim of 0 is resized to the box, grown in proportion, in whole pixels; more than one half is
     * the object */
    MASK_PASTE_RESIZE,
};

enum { MASK_PASTE_MAX_SIDE = 256 };

/* Its memory grows to a picture's needs, and is reused. NULL: out of memory. Caller frees. */
struct mask_paster *mask_paster_new(void);
void mask_paster_free(struct mask_paster *p);
/* A new picture of w x h pixels, 1 .. RLE_MAX_SIDE each: the masks of the one before are gone. */
void mask_paste_begin(struct mask_paster *p, int w, int h);
/* The next mask. map [side][side] of probabilities, rows from the top; box x1, y1, x2, y2 in pixels of the picture,
 * which it may leave. The crop holds every object pixel inside the picture; it has no size if the box is empty, outside
 * or not finite. -ENOMEM. */
int mask_paste(struct mask_paster *p, enum mask_paste how, const float *map, int side, const float box[4], struct err *err);
/* The masks of the picture, in the order pasted; until the next call for p. */
const struct result_mask *mask_paste_masks(struct mask_paster *p, int *ret_n);
