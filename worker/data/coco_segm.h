/* worker/data/coco_segm.h - is a COCO segmentation well formed? Polygons: pairs, at least three points, nested in a list. Run lengths, as
 * numbers or compressed: none negative, their sum is the image. Nothing is kept; boxes do not need masks, but a file whose
 * masks are broken is not to be trusted silently. */
#pragma once
#include <stddef.h>

struct json_scan;

/* Takes the value. Returns what is wrong with it (constant text) or NULL; *ret_w, *ret_h: size that run lengths state, else 0.
 * text and cap: memory for strings, see scan_text(). Syntax errors fail the scan. */
const char *coco_segm_check(struct json_scan *s, char **text, size_t *cap, int *ret_w, int *ret_h);
