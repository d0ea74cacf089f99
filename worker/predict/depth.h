/* SPDX-License-Identifier: Apache-2.0 */ /* worker/predict/depth.h - predict's output of a picture's depth. */
#pragma once
#include <stdint.h>

struct depth_lens;
struct err;
struct jobspec;
struct result;

/* Writes numbers of 16 bits to the file `numbers`, and a picture to look at to `colours` (eval/depth_picture.h), each
 * whole or not at all. A number is depth times the file's text "Depth-scale", a power of two by which the farthest
 * pixel just fits. "Depth-unit" is m if the job knows the network's unit (val.depth_factor), else network.
 * ERR_NONFINITE: no depth. */
int predict_write_depth(const struct result *r, const struct jobspec *spec, const char *numbers, const char *colours, struct err *err);
/* Writes another picture [h][w][3], as large as the depth, as seen at the target's pixels to the file `path`
 * (eval/depth_view.h): it equals the target if depth and motion fit. motion: [RESULT_POSE], from the target's camera to
 * that picture's. */
int predict_write_view(const struct result *r, const struct depth_lens *lens, const double *motion, const uint8_t *rgb, const char *path,
                       struct err *err);
