/* SPDX-License-Identifier: Apache-2.0 */ /* worker/models/sparse/network.h - the layers of Sparse R-CNN: a ResNet with
 * a feature pyramid, learned proposals, and the stages that refine them; their parameters, names and initial values.
 * Source: specs sparse_rcnn sections 2, 3 and 13.1. */
#pragma once
#include <stdbool.h>

#include "worker/layers/sparse.h"
#include "worker/models/pyramid.h"

struct err;
struct jobspec;
struct model;

enum { SPARSE_POOL = 7, SPARSE_MAX_TOWER = 8 };

/* Places of arrays beyond those of the pyramid. part.stage is the stage, from 0. */
enum { SPARSE_PROPOSALS = RCNN_PLACES, SPARSE_STAGE, SPARSE_CLASSES /* of a stage: arrays that depend on the class count */ };

struct sparse_norm {
    struct param *gamma, *beta;
};

/* A linear layer without bias, its normalisation, and a ReLU. */
struct sparse_layer {
    struct net_conv linear;
    struct sparse_norm norm;
};

struct sparse_stage {
    struct net_conv qkv, mix;              /* attention: before and after */
    struct net_conv dynamic, flat;         /* interaction: the weights of its products; its output */
    struct net_conv wide, narrow;          /* feed-forward */
    struct sparse_norm after[3], inner[3]; /* of the stage; of the interaction */
    struct sparse_layer cls[SPARSE_MAX_TOWER], reg[SPARSE_MAX_TOWER];
    struct net_conv logits, deltas;
};

struct sparse_network {
    struct pyramid front;
    int proposals, channels, inner, heads, nstages, ncls, nreg;
    struct param *boxes, *features;
    float *start; /* [proposals][4]: initial values of boxes */
    struct sparse_stage stage[SET_MAX_STAGES];
};

/* Adds all parameters to m, in the names of the reference. Errors name the key, or the part that lacked memory. */
int sparse_network_open(struct sparse_network *n, struct model *m, const struct jobspec *spec, int classes, struct err *err);
void sparse_network_close(struct sparse_network *n);

/* Computes one stage from regions [R, 7, 7, c] and q [R, 1, 1, c], which are dropped. Returns the next q. *ret_logits
 * and *ret_deltas are f32; ret_logits may be NULL. */
struct value *sparse_stage(const struct sparse_network *n, int stage, struct tape *t, struct value *pooled, struct value *q,
                           struct value **ret_logits, struct value **ret_deltas);

/* Calls visit for each convolution and linear layer of a batch of such shards; 0 images for rows of proposals. Canvas
 * { 0, 0 }: only the stages. */
int sparse_each_conv(const struct sparse_network *n, struct canvas canvas,
                     int (*visit)(void *arg, const struct net_use *use, struct err *err), void *arg, struct err *err);
