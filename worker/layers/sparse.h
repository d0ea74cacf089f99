/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/sparse.h - layers of detectors that see objects as a set:
 * layer normalisation, attention, products with weights made for each row, proposals, matching and losses. Rows are
 * tensors [R, 1, 1, channels]. Like all layers (layers.h), they return NULL once the tape has failed, and accept NULL.
 * Memory is the tape's, until the next tape_begin(). */
#pragma once
#include "worker/layers/layers.h"
#include "worker/layers/tape.h"
#include "worker/ops/set.h"

/* rownorm.c: act(layer normalisation of x + residual), of `dtype`; residual NULL: of x alone. act is ReLU or nothing.
 * gamma and beta [c]; eps 1e-5. x and residual may have dtypes of their own. */
struct value *layer_row_norm(struct tape *t, struct value *x, struct value *residual, struct param *gamma, struct param *beta, bool relu,
                             enum dtype dtype);
/* attention.c: qkv [images * rows, 1, 1, 3 * d] to [images * rows, 1, 1, d]; see ops/attn.h. */
struct value *layer_attention(struct tape *t, struct value *qkv, int heads, int rows);
/* mat.c: x [R, h, w, k] times a matrix of each row: channels at .. at + k * n - 1 of weights [R, 1, 1, any], seen as
 * [k][n]. Gives [R, h, w, n]. All of one dtype, nothing pending. Layers that read other channels of the same weights
 * may follow. */
struct value *layer_row_mul(struct tape *t, struct value *x, struct value *weights, int at, int n);

/* set.c. head is copied by the recording layers. images, truth: [shards], must outlive the backward pass. */

/* The proposals of a pass. */
struct set_start {
    struct value *q;    /* [R, 1, 1, d] f32 */
    float *const *box;  /* [shards] [R][4] */
    float *const *dbox; /* [shards] the gradient of box: the loss of stage 0 writes it; NULL in TAPE_EVAL */
};
/* boxes [proposals][1][1][4], features [proposals][1][1][d]. NULL fails the tape. */
const struct set_start *layer_set_start(struct tape *t, const struct set_head *head, struct param *boxes, struct param *features,
                                        const struct rcnn_images *images);
/* [shards] [R][4]: the boxes moved by deltas [R, 1, 1, 4] f32. No gradient is recorded: the loss makes it. */
float *const *layer_set_decode(struct tape *t, const struct set_head *head, float *const *box, struct value *deltas);
/* [shards] matches of all stages; logits[stage] f32, box[stage]: [shards] [R][4]. */
const struct set_match *layer_set_match(struct tape *t, const struct set_head *head, struct value *const *logits, float *const *const *box,
                                        const struct rcnn_images *images, const struct rcnn_truth *truth);

struct set_stage {
    int stage;                       /* from 0 */
    struct value *logits, *deltas;   /* f32 */
    float *const *base, *const *box; /* before and after the deltas */
    float *const *dbase;             /* gets the gradient of base; NULL: not wanted */
};
/* The losses of a stage. terms: rows of [SET_TERMS], one a shard in training, else one an image, shard after shard. In
 * training the gradient, times grad_scale, is put on logits and deltas at once. */
int layer_set_loss(struct tape *t, const struct set_head *head, const struct set_stage *stage, const struct set_match *match,
                   const struct rcnn_images *images, const struct rcnn_truth *truth, float grad_scale, double *const *terms);
