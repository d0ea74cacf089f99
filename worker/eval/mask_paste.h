/* worker/eval/mask_paste.h - a mask head's square map of probabilities, laid over its box in the picture: which pixels are the object's. Pure.
 * Source: specs rcnn section 6.3. */
#pragma once
#include <stdint.h>

#include "worker/eval/result.h"

struct err;

enum mask_paste {
    MASK_PASTE_HALF_PIXEL, /* d2: each pixel's middle is looked up in the map, 0 around it; at least one half is the object */
    MASK_PASTE_RESIZE, /* tv: the map with a rim of 0 is resized to the box, grown in proportion, in whole pixels; more than one half is the object */
};

enum { MASK_PASTE_MAX_SIDE = 256, MASK_PASTE_MAX_PICTURE = 16384 };

/* Memory of the masks of a picture, which grows and is used again; all zero at first. The owner frees `bits`. */
struct mask_bits {
    uint8_t *bits;
    size_t used, room; /* bytes */
};

/* map [side][side]; box x1, y1, x2, y2 in pixels of the picture, w x h pixels. The crop holds every pixel that is the object's and lies within the picture; it
 * is empty (w = h = 0) where there is none. Its bits are appended to *to: ret->bits stays NULL, *ret_at says where they begin, as memory may move until the last
 * mask of the picture is there. A box that is not finite or has no area gives an empty crop. -ENOMEM. */
int mask_paste(enum mask_paste how, const float *map, int side, const float box[4], int w, int h, struct mask_bits *to,
               struct result_mask *ret, size_t *ret_at, struct err *err);
