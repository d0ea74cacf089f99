/* SPDX-License-Identifier: Apache-2.0 */ /* worker/layers/tape.h - define-by-run automatic differentiation over the
 * local shards of one wave, in lockstep.
 *
 * Layers (worker/layers) compute through the device at once and record how to go back; tape_backward() walks the
 * records in reverse. A value's memory comes from the step arena and goes back when the model has dropped it and no
 * record will read it any more, at the latest after its producer's backward; a gradient goes back after its producer's
 * backward. Shapes may change every step. The first error sticks: later layers do nothing and return NULL, so a model
 * checks once, at its end.
 *
 * How others use it: a CUDA device queues the same calls on a stream and host order stays stream order; a two-stage
 * detector records ops whose values have static capacity and a device count; a network with two encoders and a decoder
 * uses parameters and values several times: uses are counted in forward, gradients accumulate by beta, a parameter is
 * ready when its count is back at 0. */
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

/* Kinds of a per-shard vector of doubles that is merged over all shards of the job (SyncBN). */
enum merge_kind { MERGE_MOMENTS /* [2c + 1] count, mean, M2: Chan */, MERGE_SUMS /* plain sums */ };

/* How gradients and statistics leave a wave; set by the trainer. `shard` is local to the wave, from 0. */
struct tape_hooks {
    void *arg;
    /* Destination of this shard's gradient, p->count floats of device memory; the same address for every use in this
     * wave. With dev->one_dest, all shards have the address of shard 0, and *ret_written tells whether an earlier wave
     * has written it. */
    float *(*grad_dest)(void *arg, const struct param *p, int shard, bool *ret_written);
    /* Every shard's gradient of p is complete for this wave. Called once per wave for every trainable parameter. */
    int (*grad_ready)(void *arg, const struct param *p, struct err *err);
    /* Destination of the batch statistics of normalisation `index` at its use'th use, from 0, in this wave: [2c + 1]
     * doubles of device memory per shard. */
    double *(*stats_dest)(void *arg, int index, int use, int shard);
    /* Merges n doubles of each local shard with those of all other shards of the job into ret (all device memory). */
    int (*merge)(void *arg, enum merge_kind kind, const double *const *local, int n, double *ret, struct err *err);
};

/* A differentiable activation of all local shards. grad is the gradient of the *activated* value, act(fma(x, scale,
 * shift)). */
struct value {
    struct tensor *x;    /* [nshards] */
    struct affine *act;  /* [nshards], or NULL: nothing pending */
    struct tensor *grad; /* [nshards] */
    bool needs_grad;
    /* memory of grad, perhaps shared with other values; NULL until it is written, and after it has gone back */
    struct storage *grad_mem;
    struct storage *mem;
    struct tensor *plain; /* [nshards] the activated value, if a reader needed it computed; else NULL */
    struct storage *plain_mem;
};

struct node {
    int (*backward)(struct tape *t, struct node *n, struct err *err);
    struct value *out;
    struct value **in;
    int nin;
    void *ctx;              /* op's own, from tape_host() */
    bool takes_pooled;      /* the gradient of its output may come from tape_grad_pooled() */
    struct storage **reads; /* memory that backward reads: it stays until then */
    int nreads;
};

/* The values that a record's backward reads besides gradients. */
enum tape_reads {
    READS_INPUTS = 1,      /* tape_operands() of its inputs */
    READS_CONV_INPUTS = 2, /* tape_conv_operands() of them */
    READS_OUTPUT = 4,      /* tape_operands() of its output */
};

/* Caller frees; the arena and the device stay the caller's. params: all of the model, in order of param.index. */
struct tape *tape_new(struct device *dev, struct arena *arena, int nparams);
void tape_free(struct tape *t);
/* From now on done(arg) is called whenever a layer has been computed (or queued), or gone back, so that a long wave
 * shows its progress. */
void tape_tell(struct tape *t, void (*done)(void *arg), void *arg);
/* Starts a wave (or an evaluation batch) of nshards local shards. Everything of the wave before is given back. hooks
 * may be NULL in TAPE_EVAL. */
void tape_begin(struct tape *t, enum tape_mode mode, int nshards, const struct tape_hooks *hooks);
/* Runs all records backwards and calls grad_ready for each of params that trains (unused ones get zeros). Returns the
 * sticky error. */
int tape_backward(struct tape *t, struct param *const *params, int nparams, struct err *err);
/* The sticky error: 0, or its code with *err filled. */
int tape_status(const struct tape *t, struct err *err);
/* The model will not read v again: its memory goes back now, or after the last record that reads it in backward. NULL
 * is ignored. */
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
/* Host memory until the next tape_begin(), zeroed; never NULL: bookkeeping is small, and the process aborts if memory
 * runs out. */
void *tape_host(struct tape *t, size_t bytes);
/* Device memory until the next tape_begin(), 64-byte aligned. NULL fails the tape, naming `what`. */
void *tape_device_mem(struct tape *t, size_t bytes, const char *what);
/* A value with memory for `shape` (data and stride ignored: device_stride()), in its dtype: shards contiguous. Only
 * floats have gradients. Values of another dtype than the device's are dense.
 * NULL fails the tape. */
struct value *tape_value(struct tape *t, const struct tensor *shape, bool needs_grad, const char *what);
/* The same without gaps, even on a device that would like them: for pictures, as a gap would be most of their pixel. No
 * gradient. */
struct value *tape_dense(struct tape *t, const struct tensor *shape, const char *what);
/* A value over memory the caller keeps. fp32 (images) is copied to the device's dtype if that differs; all else stays
 * as it is. NULL fails the tape. */
struct value *tape_input(struct tape *t, const struct tensor *x);
/* A value that shares v's memory and has another pending part. */
struct value *tape_alias(struct tape *t, struct value *v, struct affine *act, bool needs_grad);
/* A value of the same numbers, seen as tensors of other sides and channels: x without gaps, and nothing pending on
 * it. */
struct value *tape_reshape(struct tape *t, struct value *v, const struct tensor *shape);
/* The operands of device ops: x and act of every shard, from tape_host(). */
struct operand *tape_operands(struct tape *t, const struct value *v);
/* The activated value of every shard: v itself if nothing is pending, else computed when it is first asked for and kept
 * as long as v. NULL fails the tape. */
const struct tensor *tape_plain(struct tape *t, struct value *v);
/* The operands of convolutions: tape_operands(), or tape_plain() on devices with convolutions that read no pending
 * values. NULL fails the tape. */
struct operand *tape_conv_operands(struct tape *t, struct value *v);
/* Records how out came of in[nin], if out needs a gradient; backward runs if it got one. reads: of enum tape_reads. */
void tape_record(struct tape *t, int (*backward)(struct tape *, struct node *, struct err *), struct value *out, struct value *const *in,
                 int nin, unsigned reads, void *ctx);
/* Forward declares a use of p; its gradient is expected once in backward, unless it does not train. */
void tape_use(struct tape *t, const struct param *p);
/* Forward declares a use of the batch statistics of normalisation `index`. Returns its number of uses before in this
 * wave. */
int tape_norm_use(struct tape *t, int index);
/* Its number of uses so far. */
int tape_norm_uses(const struct tape *t, int index);
/* In backward: destinations of p's gradient (one per shard) and the beta to write with. NULL: error is in *err. */
float *const *tape_grad_dest(struct tape *t, const struct param *p, float *ret_beta, struct err *err);
/* In backward: one use of p is written; after the last one it is handed on. */
int tape_grad_done(struct tape *t, const struct param *p, struct err *err);
/* In backward: memory for v's gradient, shared with no other value, and the beta to write with. */
int tape_grad(struct tape *t, struct value *v, float *ret_beta, struct err *err);
/* In backward, where each number of v's gradient becomes another: *ret_from is read, v->grad is written. v->grad has
 * the same memory, or new memory if other values share that gradient. */
int tape_grad_turn(struct tape *t, struct value *v, const struct tensor **ret_from, struct err *err);
/* n: pooling of 2 x 2 pixels of an even input. On a device with pooled_grads the gradient of its output becomes its
 * input's as it is, if the input was recorded just before and the input's backward can take it (tape_takes_pooled(),
 * right after its record). Nothing else then adds to it. */
bool tape_grad_pooled(struct tape *t, const struct node *n);
void tape_takes_pooled(struct tape *t, const struct value *v);
/* In backward: from's gradient as it stands is also the gradient of `to`, a value of the same shape, or of another
 * shape over the same numbers. They share one memory until one of them is written. If other readers of `to` have left a
 * gradient there, it is added to that. */
int tape_grad_hand_on(struct tape *t, struct value *from, struct value *to, struct err *err);
/* [c] floats of device memory, all equal to f; kept for the life of the tape. */
const float *tape_constant(struct tape *t, float f, int c);
