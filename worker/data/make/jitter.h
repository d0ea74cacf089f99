/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/jitter.h - a picture's colours changed as torchvision's ColorJitter does with pictures of bytes, bit by bit. Pure. Source: specs featdepth
 * section 4.2. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* In this order they are numbered, and in any they are applied. */
enum jitter_op { JITTER_BRIGHTNESS, JITTER_CONTRAST, JITTER_SATURATION, JITTER_HUE, JITTER_OPS };

struct jitter {
    float amount[JITTER_OPS]; /* factors, 1: as it is; of hue the shift, as a part of the circle, -0.5 .. 0.5 */
    enum jitter_op order[JITTER_OPS];
};

/* One of them. rgb [pixels][3] in place. */
void jitter_one(enum jitter_op op, float amount, uint8_t *rgb, size_t pixels);
/* All, in their order. */
void jitter(const struct jitter *j, uint8_t *rgb, size_t pixels);
