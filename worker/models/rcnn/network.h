/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/rcnn/network.h - the convolutions of Faster and Mask R-CNN:
 * ResNet, feature pyramid, RPN, heads; their parameters and their order. rcnn.c has the parts between them (anchors,
 * proposals, losses). Source: specs rcnn sections 2, 3.2, 4.2, 5.1. */
#pragma once
#include <stdbool.h>

#include "worker/layers/layers.h"
#include "worker/models/pyramid.h"

struct err;
struct jobspec;
struct model;

enum { RCNN_LEVELS = 5 /* P2 .. P6 */, RCNN_POOLED = PYRAMID_LEVELS, RCNN_MASK_CONVS = 4 };
enum { RCNN_RATIOS = 3, RCNN_BOX_POOL = 7, RCNN_USUAL_POOL = 14 /* of masks; older files do not store theirs */ };

struct rcnn_network {
    struct pyramid front;
    struct net_conv rpn, objectness, deltas;
    struct net_conv fc1, fc2, cls, box;
    struct net_conv mask[RCNN_MASK_CONVS], deconv, predictor; /* of mask models */
    bool masks;
    /* pixels along either axis of the mask head's input for a region; its output has twice as many */
    int mask_pool;
};

/* Columns of the last layers, which depend on the flavor. */
struct rcnn_columns {
    int cls, box, mask;
};

/* Adds all parameters to m, in the spelling of the job's flavor. Errors name the part that lacked memory. */
int rcnn_network_open(struct rcnn_network *n, struct model *m, const struct jobspec *spec, const struct rcnn_columns *columns,
                      struct err *err);
void rcnn_network_close(struct rcnn_network *n);

/* Pictures to P2 .. P6. size: [shards] device memory, [n][2] height and width of each picture. */
void rcnn_pyramid(struct rcnn_network *n, struct tape *t, const struct tensor *images, const int32_t *const *size,
                  struct value *ret[RCNN_LEVELS]);
/* The RPN's outputs for every level, f32. */
void rcnn_proposal_head(struct rcnn_network *n, struct tape *t, struct value *const p[RCNN_LEVELS], struct value *ret_logits[RCNN_LEVELS],
                        struct value *ret_deltas[RCNN_LEVELS]);
/* Pooled features [cap, 7, 7, c], which are dropped, to logits and deltas [cap, 1, 1, columns], f32. */
void rcnn_box_head(struct rcnn_network *n, struct tape *t, struct value *pooled, struct value **ret_logits, struct value **ret_deltas);
/* [cap, mask_pool, mask_pool, c], dropped, to [cap, 2 * mask_pool, 2 * mask_pool, channels], f32. */
struct value *rcnn_mask_head(struct rcnn_network *n, struct tape *t, struct value *pooled);

/* Calls visit for each convolution that a batch of such shards needs: its input's sides, 0 images for the rows of
 * regions. passes: see plan's conv. Canvas { 0, 0 }: only the heads, with regions as inputs. */
int rcnn_each_conv(const struct rcnn_network *n, struct canvas canvas, int (*visit)(void *arg, const struct net_use *use, struct err *err),
                   void *arg, struct err *err);
