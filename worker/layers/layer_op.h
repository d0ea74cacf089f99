/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/layer_op.h - what every layer does: look at what it reads, ask for an output, compute, record the way back. A layer without
 * parameters is one struct layer_kind. */
#pragma once
#include "worker/layers/layers.h"

/* One call of a layer over all local shards. */
struct layer_call {
    struct tape *t;
    struct device *dev;
    struct value *const *in;
    int nin, nshards;
    const void *args; /* as layer_op() was given them */
    struct value *out;
};

struct layer_kind {
    const char *what; /* names its output in errors */
    unsigned reads;   /* what bwd reads of the values, of enum tape_reads */
    /* Makes y of input 0's tensor of this shard, and asserts that the inputs fit each other. NULL: all are of one shape and dtype, and so is
     * the output. */
    void (*shape)(const struct layer_call *c, int shard, struct tensor *y);
    /* Computes out->x. */
    int (*fwd)(const struct layer_call *c, struct err *err);
    /* in[i]->grad = beta * in[i]->grad + what out->grad makes of it; for each input that needs one. */
    int (*bwd)(const struct layer_call *c, int i, float beta, struct err *err);
    /* May tape_grad_pooled() be asked first? NULL: no. */
    bool (*pools)(const struct layer_call *c);
};

/* Calls a layer: its output, which needs a gradient if an input does; NULL once the tape has failed. args: copied, may be NULL. */
struct value *layer_op(struct tape *t, const struct layer_kind *kind, struct value *const *in, int nin, const void *args, size_t bytes);
/* An assert: tensors of one shape and dtype, whatever their strides. */
void layer_same_shape(const struct tensor *a, const struct tensor *b);
