/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/jitter.h - changes a picture's colours like torchvision's
 * ColorJitter on pictures of bytes, bit by bit. Pure. Source: specs featdepth section 4.2. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* They are numbered in this order, and may be applied in any order. */
enum jitter_op { JITTER_BRIGHTNESS, JITTER_CONTRAST, JITTER_SATURATION, JITTER_HUE, JITTER_OPS };

struct jitter {
    float amount[JITTER_OPS]; /* factors, 1: no change; hue: the shift, as a part of the circle, -0.5 .. 0.5 */
    enum jitter_op order[JITTER_OPS];
};

/* Applies one of them. rgb [pixels][3] in place. */
void jitter_one(enum jitter_op op, float amount, uint8_t *rgb, size_t pixels);
/* Applies all, in their order. */
void jitter(const struct jitter *j, uint8_t *rgb, size_t pixels);
