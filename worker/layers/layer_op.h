/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/layer_op.h - the steps of every layer: look at its inputs,
 * ask for an output, compute, record the way back. A layer without parameters is one struct layer_kind. */
#pragma once
#include "worker/layers/layers.h"

/* A call of a layer over all local shards. */
struct layer_call {
    struct tape *t;
    struct device *dev;
    struct value *const *in;
    int nin, nshards;
    const void *args; /* the args of layer_op() */
    struct value *out;
};

struct layer_kind {
    const char *what; /* names its output in errors */
    unsigned reads;   /* the values that bwd reads, of enum tape_reads */
    /* Makes y from input 0's tensor of this shard, and asserts that the inputs fit each other. NULL: all inputs have
     * one shape and dtype, and so has the output. */
    void (*shape)(const struct layer_call *c, int shard, struct tensor *y);
    /* Computes out->x. */
    int (*fwd)(const struct layer_call *c, struct err *err);
    /* in[i]->grad = beta * in[i]->grad + its gradient from out->grad; for each input that needs one. */
    int (*bwd)(const struct layer_call *c, int i, float beta, struct err *err);
    /* May tape_grad_pooled() be asked first? NULL: no. */
    bool (*pools)(const struct layer_call *c);
};

/* Calls a layer. Returns its output, which needs a gradient if an input does; NULL once the tape has failed. args:
 * copied, may be NULL. */
struct value *layer_op(struct tape *t, const struct layer_kind *kind, struct value *const *in, int nin, const void *args, size_t bytes);
/* An assert: tensors of one shape and dtype, with any strides. */
void layer_same_shape(const struct tensor *a, const struct tensor *b);
/* For a loss, which makes gradients in its forward pass: memory for v's. *ret is NULL if v needs no gradient. */
int layer_loss_grad(struct tape *t, struct value *v, struct tensor **ret);
