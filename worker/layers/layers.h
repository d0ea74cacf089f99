/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/layers.h - differentiable operations on the tape. Each
 * computes through the device at once and records its way back. All return NULL once the tape has failed, and then
 * accept NULL, so that a model reads as a sequence of calls. Values belong to the tape. Shapes are checked here, once
 * for all devices. A wrong shape is an error of this program: a user's network is refused by name before. Numbers of
 * images, heights and widths may differ between shards, channels and dtypes may not. Frozen parameters
 * (param.trainable) get no gradient. A value that depends on no trainable parameter needs no gradient and leaves no
 * record: its memory goes back as soon as the model drops it. */
#pragma once
#include <stdbool.h>

#include "worker/ops/families.h"
#include "worker/layers/tape.h"

/* A normalisation of k channels; the parameters belong to the model. */
struct norm {
    struct param *gamma, *beta, *mean, *var;
    float eps;
    int index;   /* position among the model's normalisations: the trainer knows its statistics by it */
    int uses;    /* layers that use it in a step: each has its own statistics and updates the running ones once */
    bool sync;   /* batch statistics over all shards of the job */
    bool frozen; /* running statistics, also in training; gamma and beta get no gradient */
};

/* conv.c: y = conv(x, w) (+ bias); raw, nothing pending. */
struct value *layer_conv(struct tape *t, struct value *x, const struct conv *cv, struct param *w, struct param *bias);
/* norm.c: conv, then batch normalisation and leaky activation (slope 1: no activation, 0: ReLU), which stay pending on
 * the raw output. */
struct value *layer_conv_norm(struct tape *t, struct value *x, const struct conv *cv, struct param *w, const struct norm *n, float slope);
/* act.c: leaky activations stay pending on x's memory, the others are computed; ACT_LINEAR is x itself. */
struct value *layer_act(struct tape *t, struct value *x, enum act_kind kind);
/* Leaky with another slope, pending on x's memory; nothing may be pending on x. */
struct value *layer_leaky(struct tape *t, struct value *x, float slope);
struct value *layer_add(struct tape *t, struct value *a, struct value *b);
/* Each number is 0 with probability rate, else divided by 1 - rate. keys: one for every image, shard after shard,
 * copied. x itself in TAPE_EVAL. */
struct value *layer_dropout(struct tape *t, struct value *x, float rate, const struct philox_key *keys);
/* The same numbers in another dtype, f32 or bf16; activated, nothing pending. x itself if it has that dtype. */
struct value *layer_cast(struct tape *t, struct value *x, enum dtype dtype);
/* The same numbers with nothing pending: x itself if nothing is. */
struct value *layer_plain(struct tape *t, struct value *x);
/* The same numbers, and no gradient goes back. Shares v's memory, which is freed when both are done. */
struct value *layer_detach(struct tape *t, struct value *v);
/* pool.c */
struct value *layer_maxpool(struct tape *t, struct value *x, const struct pooling *p);
/* resample.c */
struct value *layer_concat(struct tape *t, struct value *const *parts, int nparts);
/* The first c channels; if x has fewer, zeros follow. x itself if it has exactly c. */
struct value *layer_channels(struct tape *t, struct value *x, int c);
struct value *layer_upsample(struct tape *t, struct value *x, int factor);
/* Parts side by side in channels, each pixel of part i first made factor[i] x factor[i], with `pad` mirrored pixels
 * around: the input of a 3x3 convolution without padding. See struct mirror; all parts then have the same sides. */
struct value *layer_mirror(struct tape *t, struct value *const *parts, const int *factor, int nparts, int pad);
/* Bilinear, pixels as areas, of f32. x itself where it has these sides. */
struct value *layer_resize(struct tape *t, struct value *x, int h, int w);
/* factor * the mean of the pixels of each image: [n, 1, 1, c]. */
struct value *layer_mean(struct tape *t, struct value *x, float factor);
/* view.c: pictures of bytes as numbers of `dtype`, 0 beyond size[shard][image] (height, width; device memory); size
 * NULL: they are as large as their canvas. */
struct value *layer_pictures(struct tape *t, const struct tensor *images, const int32_t *const *size, const struct view_colours *colours,
                             enum dtype dtype);
/* Each image as one pixel of h * w * c channels, for a layer that sees all of an image. x must lie without gaps. */
struct value *layer_flat(struct tape *t, struct value *x);
/* A transposed convolution 2x2 of stride 2: w is [4 * outputs][1][1][c] (LAYOUT_IOHW), outputs a multiple of 4 where
 * the device wants rows without gaps. */
struct value *layer_enlarge(struct tape *t, struct value *x, struct param *w, struct param *bias);
/* roi.c: RoIAlign of roi->nlevels levels, [cap, pool, pool, c], with count rows in use; boxes get no gradient. roi and
 * rows ([shards], host) are copied; the memory that rows point to must stay unchanged until the backward pass is
 * over. */
struct value *layer_roi_align(struct tape *t, struct value *const *level, const struct roi_align *roi, const struct roi_rows *rows);
/* yolo.c: the loss of one head. net: [shards] the network's input. terms: rows of [YOLO_TERMS] doubles, written: in
 * training one a shard, else one an image, shard after shard. In training the gradient, times grad_scale, is put on
 * logits at once. */
int layer_yolo_loss(struct tape *t, struct value *logits, const struct yolo_head *head, const struct canvas *net, float grad_scale,
                    const struct box_list *truth, double *const *terms);
/* Number of those rows. */
int layer_yolo_rows(const struct tape *t, const struct tensor *images);
