/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/image/exif.h - how to turn a picture: the orientation in the
 * EXIF block of a JPEG, a PNG or a WebP. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* 1 upright as stored; 2 mirrored left to right; 3 upside down; 4 mirrored top to bottom; 5 mirrored along the diagonal
 * from the top left; 6 to be turned clockwise by a quarter; 7 mirrored along the other diagonal; 8 to be turned the
 * other way. 1 also for other kinds of files, or if the block is broken. The first of several numbers counts, and the
 * last of several entries, as in Pillow. Source: Exif 2.3 (CIPA DC-008), 4.6.4, tag 274; PNG 3, 11.3.2.8 (eXIf). */
int exif_orientation(const uint8_t *bytes, size_t size);
