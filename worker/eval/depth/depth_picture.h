/* SPDX-License-Identifier: Apache-2.0 */ /* worker/eval/depth/depth_picture.h - a depth map as pictures: as numbers of
 * 16 bits, and in colours to look at. Pure. */
#pragma once
#include <stdint.h>

struct err;
struct result_map;

/* Numbers of a PNG per unit: the largest power of two, 2^-10 .. 2^15, with which `farthest` fits, or 64 times `median`,
 * depth in the midst of the picture, if that is less: a sky a thousand times as far as the road must not leave the road
 * a dozen numbers. */
double depth_code_scale(double farthest, double median);
/* Depth times factor times scale, rounded, at least 1 and at most 65535 (that depth or farther): ret [h][w]. */
void depth_code(const struct result_map *m, double factor, double scale, uint16_t *ret);
/* Near is bright, far is dark, by the inverse of depth between the farthest pixel and the depth that a twentieth of all
 * pixels is nearer than: ret [h][w][3]. -ENOMEM. */
int depth_colours(const struct result_map *m, uint8_t *ret, struct err *err);
/* The colour of x in 0 .. 1, from dark to bright: lightness rises all the way while the hue turns, so that it reads in
 * grey, too. Source: Green 2011, A colour scheme for the display of astronomical intensity images, arXiv:1108.5083. */
void depth_colour(double x, uint8_t ret_rgb[3]);
