/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/coco/coco_segm.h - is a COCO segmentation well formed?
 * Polygons: pairs, at least three points, nested in a list. Run lengths, as numbers or compressed: no negative ones,
 * and their sum is the image. Boxes do not need masks, but a file with broken masks should not be trusted silently. A
 * caller that asks for them gets them kept. */
#pragma once
#include <stddef.h>

#include "worker/data/set/mask.h"

struct json_scan;

struct coco_segm {
    int rle_w, rle_h;     /* size stated by the run lengths, else 0 */
    struct mask_ref mask; /* the kept mask; MASK_NONE: nothing to keep, or not asked to */
    /* flaw of the first polygon that is too short or odd, if others are sound; NULL: all are sound */
    const char *left_out;
};

/* Reads the value. Returns its flaw (constant text) or NULL. keep: the mask is added to it unless it has a flaw; NULL:
 * it is not kept. Kept masks are bounded (mask.h), and so are their coordinates. text and cap: memory for strings, see
 * scan_text(). Syntax errors fail the scan. */
const char *coco_segm_read(struct json_scan *s, char **text, size_t *cap, struct masks *keep, struct coco_segm *ret);
