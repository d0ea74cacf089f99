/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/font.h - a small monospaced bitmap font, drawn for this
 * program. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Font units. A glyph is FONT_W wide, FONT_BASE rows above the base line and two below; letters are FONT_ADVANCE
 * apart. */
enum { FONT_W = 5, FONT_H = 9, FONT_BASE = 7, FONT_ADVANCE = 6 };

/* How much of a letter covers the point (x, y), font units from the glyph's top left corner: 0 .. 255. `scale` is
 * pixels per unit and sets how soft edges are; corners come out rounded. Characters other than printable ASCII are
 * drawn as '?'. */
unsigned font_coverage(unsigned char letter, double x, double y, double scale);
/* Converts a UTF-8 text to letters of the font, '?' for each other character: at most size - 1, NUL-terminated. Returns
 * their number. */
size_t font_letters(const char *utf8, char *ret, size_t size);
