/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/read/likeness.h - finds pictures that look alike although their
 * files differ: scaled, saved anew, or neighbours of a film. Pure. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct image;

/* 64 bits of a picture: in a grid of 9 x 8 mean levels, each bit tells if a cell is darker than its right neighbour (a
 * difference hash). 0: the picture is too small or too even to tell. */
uint64_t likeness_of(const struct image *img);
/* Do two pictures look alike? At most 2 of their bits differ. */
static inline bool likeness_near(uint64_t a, uint64_t b)
{
    return a && b && __builtin_popcountll(a ^ b) <= 2;
}
