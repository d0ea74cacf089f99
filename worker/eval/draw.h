/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/draw.h - boxes with class names and scores on an RGB picture,
 * and masks below them. Sizes of lines and letters follow the picture's. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/eval/result.h"

struct err;

/* A picture owned by the caller: 3 bytes a pixel, rows without gaps. */
struct picture {
    uint8_t *rgb;
    int w, h;
};

/* Draws dets[n] (image and slot are ignored), the best on top. Boxes are clipped; boxes with a number that is not
 * finite are left out. A score above 1 means no score, as for ground truth, and is not written. names[nnames] are UTF-8
 * (letters that the built-in font lacks become '?'); a class without a name is shown by its number. Fails only with
 * -ENOMEM. */
int draw_detections(struct picture *p, const struct detection *dets, size_t n, const char *const *names, int nnames, struct err *err);
/* Covers masks[n] (best first: the best is on top) with a half-transparent colour and a border; colours follow the
 * place in the list, so that neighbours of a class differ. The picture is `factor` times as large as the masks'
 * picture; masks are clipped. */
void draw_masks(struct picture *p, const struct result_mask *masks, int n, int factor);
/* The colour of a class: bright, far from those of neighbouring numbers. */
void draw_class_color(int cls, uint8_t ret_rgb[3]);
enum { DRAW_MAX_FACTOR = 32 };
/* Enlarges smoothly by a whole factor up to DRAW_MAX_FACTOR (small pictures have no room for letters). ret->rgb is
 * malloc'ed, caller frees. */
int draw_enlarge(const struct picture *p, int factor, struct picture *ret, struct err *err);
