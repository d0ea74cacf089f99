/* SPDX-License-Identifier: Apache-2.0 */ /* worker/kernels/view.h - bytes of pictures as numbers, and the place of a
 * channel that becomes a pixel. */
#pragma once
#include "worker/kernels/act.h"
#include "worker/ops/view.h"

/* Channel k of the pixel with the three bytes rgb. */
KERNEL_FN float view_colour(const struct view_colours *c, const uint8_t *rgb, int k)
{
    return ((float)rgb[c->swap ? 2 - k : k] - c->mean[k]) / c->std[k];
}

/* The pixel of the large side that quarter q = 2u + v of pixel (y, x) becomes, in an image `w` pixels wide on the small
 * side. */
KERNEL_FN size_t view_quarter(int y, int x, int w, int q)
{
    return ((size_t)(2 * y + q / 2) * 2 * (size_t)w) + (size_t)(2 * x + q % 2);
}
