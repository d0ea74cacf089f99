/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/canvas.h - the size of a network's input: a rectangle of
 * pixels. The shards of a step may have canvases of their own. */
#pragma once
#include <stdbool.h>

struct canvas {
    int h, w;
};

static inline bool canvas_equal(struct canvas a, struct canvas b)
{
    return a.h == b.h && a.w == b.w;
}

static inline int canvas_long_side(struct canvas c)
{
    return c.h > c.w ? c.h : c.w;
}
