/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/coco/coco_segm.h - is a COCO segmentation well formed? Polygons: pairs, at least three points, nested in a list. Run lengths, as
 * numbers or compressed: none negative, their sum is the image. Boxes do not need masks, but a file whose masks are broken is not to be trusted
 * silently; who asks for them has them kept. */
#pragma once
#include <stddef.h>

#include "worker/data/set/mask.h"

struct json_scan;

struct coco_segm {
    int rle_w, rle_h;     /* size that run lengths state, else 0 */
    struct mask_ref mask; /* where it was kept; MASK_NONE: nothing to keep, or not asked to */
    const char *left_out; /* what is wrong with the first polygon that is too short or odd, where others are not; NULL: none is */
};

/* Takes the value. Returns what is wrong with it (constant text) or NULL. keep: where it is added, unless something is wrong with it; NULL: nowhere. What is
 * kept is bounded (mask.h), and so are its coordinates. text and cap: memory for strings, see scan_text(). Syntax errors fail the scan. */
const char *coco_segm_read(struct json_scan *s, char **text, size_t *cap, struct masks *keep, struct coco_segm *ret);
