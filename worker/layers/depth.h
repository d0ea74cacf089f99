/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/depth.h - layers between the networks of a depth model: a
 * camera's view made from another one's, and the difference of two pictures. All values here are f32. Once the tape has
 * failed, functions return NULL or the sticky error, and accept NULL. A loss is computed at once: it puts its gradient,
 * times grad_scale, on its input values, and records nothing. Its results are doubles in device memory: in training one
 * a shard, the mean over its images, in TAPE_EVAL one an image, shard after shard. */
#pragma once
#include "worker/layers/tape.h"
#include "worker/ops/photo.h"
#include "worker/ops/smooth.h"
#include "worker/ops/warp.h"

/* ---- warp.c ---- */

/* v: [n, 1, 1, POSE_IN], axis times angle and translation of a camera. Returns [n, 1, 1, POSE_OUT], the rows of [R |
 * t], inverted of [R^T | -R^T t]. */
struct value *layer_pose(struct tape *t, struct value *v, bool invert);
/* The source [n, h, w, c] at the places where the pixels of disp [n, h, w, 1] fall in it: [n, h, w, c]. pose: [n, 1, 1,
 * POSE_OUT], from disp's camera to the source's. camera: [shards], host, of device memory [n][CAMERA_NUMBERS], in
 * pixels of h x w; it must stay unchanged until the backward pass is over. NaN positions are not counted: they take the
 * border's pixel and give no gradient. A network that made them shows it in its own gradients. */
struct value *layer_warp(struct tape *t, struct value *source, struct value *disp, struct value *pose, const float *const *camera,
                         const struct warp *w);

/* ---- photo.c ---- */

/* The difference of a and b, specs featdepth section 3.2: [n, h, w, 1] of two [n, h, w, c], at least 2 x 2 pixels. a
 * alone gets a gradient. */
struct value *layer_photometric_map(struct tape *t, struct value *a, struct value *b, float ssim_weight);
/* weight times the mean of that map. x alone gets a gradient. */
int layer_photometric_mean(struct tape *t, struct value *x, struct value *target, float ssim_weight, float weight, float grad_scale,
                           double *const *ret);

/* Specs featdepth section 3.3: weight times the mean of the least of all maps of a pixel, those of identity [nwarped]
 * (or NULL) before those of warped [nwarped] against target; the first of equal ones counts. Gradients go to the warped
 * pictures. No noise (or NULL) in TAPE_EVAL. */
int layer_reprojection(struct tape *t, struct value *const *warped, int nwarped, struct value *target, struct value *const *identity,
                       const struct automask_noise *noise, float ssim_weight, float weight, float grad_scale, double *const *ret);
/* Specs featdepth section 3.4: weight times the mean of the least robust distance of a pixel's features; the first of
 * equal ones counts. Gradients go to warped and target. */
int layer_feature_metric(struct tape *t, struct value *const *warped, int nwarped, struct value *target, float weight, float grad_scale,
                         double *const *ret);

/* ---- smooth.c ---- */

/* Specs featdepth sections 3.5 and 3.6: the weighted mean absolute differences of x [n, h, w, c] at places where the
 * picture [n, H, W, 3] (0 .. 1, f32 device memory, one size for all shards, like x) has no edges. */
int layer_smoothness(struct tape *t, struct value *x, const struct tensor *picture, const struct smoothness *s, float grad_scale,
                     double *const *ret);
