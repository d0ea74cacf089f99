/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/carve.h - one block of memory cut into arrays. A layout
 * function runs twice: with base NULL to count, then with the block. */
#pragma once
#include <stddef.h>

enum { CARVE_ALIGN = 64 };

struct carve {
    char *base;
    size_t used;
};

/* `bytes` of the block, beginning at a multiple of `align`; NULL while counting. */
static inline void *carve_aligned(struct carve *c, size_t bytes, size_t align)
{
    void *p = c->base ? c->base + c->used : NULL;

    c->used += (bytes + align - 1) / align * align;
    return p;
}

static inline void *carve(struct carve *c, size_t bytes)
{
    return carve_aligned(c, bytes, CARVE_ALIGN);
}
