/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/tape.h - define-by-run automatic differentiation over the local shards of one wave, in lockstep.
 *
 * Layers (worker/layers) compute through the device at once and record how to go back; tape_backward() walks the records in reverse.
 * A value's memory comes from the step arena and goes back when the model has dropped it and no record will read it any more, at the latest
 * after its producer's backward; a gradient goes back after its producer's backward. Shapes may change every step. The first error sticks: later layers do nothing and return NULL, so a model checks once, at its
 * end.
 *
 * How later floors sit on it: a CUDA device queues the same calls on a stream and host order stays stream order; a two-stage detector
 * records ops whose values have static capacity and a device count; a network with two encoders and a decoder uses parameters and
 * values several times: uses are counted in forward, gradients accumulate by beta, a parameter is ready when its count is back at 0. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "proto/err.h"
#include "worker/core/device.h"
#include "worker/ops/operand.h"

struct arena;
struct storage;
struct tape;

enum tape_mode {
    TAPE_TRAIN, /* batch statistics, backward follows */
    TAPE_EVAL,  /* running statistics, no gradients */
};

/* What a shard-wise double vector is, when it is merged over all shards of the job (SyncBN). */
enum merge_kind { MERGE_MOMENTS /* [2c + 1] count, mean, M2: Chan */, MERGE_SUMS /* plain sums */ };

/* How gradients and statistics leave a wave; set by the trainer. `shard` is local to the wave, from 0. */
struct tape_hooks {
    void *arg;
    /* Where the gradient of this shard goes, p->count floats of device memory; the same address for every use in this wave. Where
     * dev->one_dest, all shards have the address of shard 0, and *ret_written says whether an earlier wave has written it. */
    float *(*grad_dest)(void *arg, const struct param *p, int shard, bool *ret_written);
    /* Every shard's gradient of p is complete for this wave. Called once per wave for every trainable parameter. */
    int (*grad_ready)(void *arg, const struct param *p, struct err *err);
    /* Where the batch statistics of normalisation `index` go, when a layer has it for the use'th time, from 0, in this wave: [2c + 1] doubles of
     * device memory per shard. */
    double *(*stats_dest)(void *arg, int index, int use, int shard);
    /* Merges n doubles of each local shard with those of all other shards of the job into ret (all device memory). */
    int (*merge)(void *arg, enum merge_kind kind, const double *const *local, int n, double *ret, struct err *err);
};

/* One differentiable activation of all local shards. grad is the gradient of the *activated* value, act(fma(x, scale, shift)). */
struct value {
    struct tensor *x;    /* [nshards] */
    struct affine *act;  /* [nshards], or NULL: nothing pending */
    struct tensor *grad; /* [nshards] */
    bool needs_grad;
    struct storage *grad_mem; /* grad's, which other values may have too; NULL until someone writes it, and when it has gone back */
    struct storage *mem;
    struct tensor *plain; /* [nshards] the activated value, where a reader needed it computed; else NULL */
    struct storage *plain_mem;
};

struct node {
    int (*backward)(struct tape *t, struct node *n, struct err *err);
    struct value *out;
    struct value **in;
    int nin;
    void *ctx;              /* op's own, from tape_host() */
    bool takes_pooled;      /* the gradient of its output may be one that tape_grad_pooled() took */
    struct storage **reads; /* what backward reads: nobody else has the memory until then */
    int nreads;
};

/* What the backward of a record reads besides gradients. */
enum tape_reads {
    READS_INPUTS = 1,      /* tape_operands() of its inputs */
    READS_CONV_INPUTS = 2, /* tape_conv_operands() of them */
    READS_OUTPUT = 4,      /* tape_operands() of its output */
};

/* Caller frees; the arena and the device stay the caller's. params: all of the model, in order of param.index. */
struct tape *tape_new(struct device *dev, struct arena *arena, int nparams);
void tape_free(struct tape *t);
/* From now on done(arg) is called whenever a layer has been computed (or queued), or gone back: so a wave that takes long is seen to get on. */
void tape_tell(struct tape *t, void (*done)(void *arg), void *arg);
/* Starts a wave (or an evaluation batch) of nshards local shards. Everything of the wave before is given back. hooks may be NULL in
 * TAPE_EVAL. */
void tape_begin(struct tape *t, enum tape_mode mode, int nshards, const struct tape_hooks *hooks);
/* Runs all records backwards, calls grad_ready for all of params that train (those that were never used get zeros). Returns the
 * sticky error. */
int tape_backward(struct tape *t, struct param *const *params, int nparams, struct err *err);
/* The sticky error: 0, or its code with *err filled. */
int tape_status(const struct tape *t, struct err *err);
/* The model will not read v again: its memory goes back now, or after the last record that reads it in backward. NULL is nothing. */
void tape_drop(struct tape *t, struct value *v);

/* ---- for layers ---- */
struct device *tape_device(const struct tape *t);
enum tape_mode tape_mode_of(const struct tape *t);
int tape_shards(const struct tape *t);
const struct tape_hooks *tape_hooks_of(const struct tape *t);
bool tape_failed(const struct tape *t);
/* Makes rc < 0 the sticky error (err is where the failing call left it). Returns rc. */
int tape_fail(struct tape *t, int rc, const struct err *err);
struct err *tape_err(struct tape *t);
/* Host memory until the next tape_begin(), zeroed; never NULL: bookkeeping is small, the process aborts when there is none. */
void *tape_host(struct tape *t, size_t bytes);
/* Device memory until the next tape_begin(), 64-byte aligned. NULL fails the tape, naming `what`. */
void *tape_device_mem(struct tape *t, size_t bytes, const char *what);
/* A value with memory for `shape` (data and stride ignored: device_stride()), in its dtype: shards contiguous. Only floats have gradients. Values of another
 * dtype than the device's are dense.
 * NULL fails the tape. */
struct value *tape_value(struct tape *t, const struct tensor *shape, bool needs_grad, const char *what);
/* The same without gaps, whatever the device would like: pictures, most of whose pixel would be its gap. No gradient. */
struct value *tape_dense(struct tape *t, const struct tensor *shape, const char *what);
/* A value over memory the caller keeps. fp32 (images) in the device's dtype, a copy where that is another; all else as it is. NULL fails the
 * tape. */
struct value *tape_input(struct tape *t, const struct tensor *x);
/* A value that shares v's memory and has another pending part. */
struct value *tape_alias(struct tape *t, struct value *v, struct affine *act, bool needs_grad);
/* A value of the same numbers, seen as tensors of other sides and channels: x without gaps, and nothing pending on it. */
struct value *tape_reshape(struct tape *t, struct value *v, const struct tensor *shape);
/* What device ops read: x and act of every shard, from tape_host(). */
struct operand *tape_operands(struct tape *t, const struct value *v);
/* The activated value of every shard: v itself where nothing is pending, else computed when it is first asked for and kept as long as v. NULL
 * fails the tape. */
const struct tensor *tape_plain(struct tape *t, struct value *v);
/* What convolutions read: tape_operands(), on devices whose convolutions read no pending values tape_plain(). NULL fails the tape. */
struct operand *tape_conv_operands(struct tape *t, struct value *v);
/* Records how out came of in[nin], if out needs a gradient; backward runs if it got one. reads: of enum tape_reads. */
void tape_record(struct tape *t, int (*backward)(struct tape *, struct node *, struct err *), struct value *out, struct value *const *in,
                 int nin, unsigned reads, void *ctx);
/* Forward declares a use of p; its gradient is expected once in backward, unless it does not train. */
void tape_use(struct tape *t, const struct param *p);
/* Forward declares a use of the batch statistics of normalisation `index`: how many it had before in this wave. */
int tape_norm_use(struct tape *t, int index);
/* How many there were so far. */
int tape_norm_uses(const struct tape *t, int index);
/* In backward: destinations of p's gradient (one per shard) and the beta to write with. NULL: error is in *err. */
float *const *tape_grad_dest(struct tape *t, const struct param *p, float *ret_beta, struct err *err);
/* In backward: one use of p is written; after the last one it is handed on. */
int tape_grad_done(struct tape *t, const struct param *p, struct err *err);
/* In backward: memory for v's gradient, no other value's, and the beta to write with. */
int tape_grad(struct tape *t, struct value *v, float *ret_beta, struct err *err);
/* In backward, where each number of v's gradient becomes another: *ret_from is read, v->grad is written. The same memory, or new where
 * other values have that gradient too. */
int tape_grad_turn(struct tape *t, struct value *v, const struct tensor **ret_from, struct err *err);
/* Pooling of 2 x 2 pixels, n, whose input is even: on a device with pooled_grads the gradient of its output becomes its input's as it is, if the input was
 * recorded just before and the backward of that can take it (tape_takes_pooled(), right after its record): so nobody else adds to it. */
bool tape_grad_pooled(struct tape *t, const struct node *n);
void tape_takes_pooled(struct tape *t, const struct value *v);
/* In backward: from's gradient as it stands is that of `to` too, a value of the same shape, or of another over the same numbers. They have one memory, until one of them is
 * written; or it is added to what other readers of `to` have left there. */
int tape_grad_hand_on(struct tape *t, struct value *from, struct value *to, struct err *err);
/* [c] floats of device memory, all equal to f; kept for the life of the tape. */
const float *tape_constant(struct tape *t, float f, int c);
