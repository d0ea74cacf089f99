/* SPDX-License-Identifier: Apache-2.0 */ /* worker/gradients/gradients.h - from per-shard gradients to the gradient of
 * the whole job, in the canonical tree, while backward runs.
 *
 * It owns all gradient memory. Parameters lie in reverse order in one flat space, each from a multiple of 1024 elements
 * on and zero between them, cut into buckets at parameter ends. Local shards fold into canonical segments (core/tree.h)
 * wave by wave. In the last wave a bucket with all its parameters complete is handed to the communication thread, in
 * the fixed bucket order. That thread makes an all-to-all of the segments' chunks, tree_add of this rank's chunk over
 * all ranks' segments, its block sums of squares, and an all-gather. The result therefore has the same bits for any
 * number of ranks, waves, buckets and threads.
 *
 * The communication thread (allreduce.h) never runs on the compute threads: it adds on a device instance of its own
 * (`side`: the same backend opened once more with one thread; on CUDA that is another stream).
 *
 * If the device adds them in the tier of a step (device.h), the local shards of a rank come as one sum, which is a leaf
 * of a tree over ranks. That depends on the number of ranks, as TIER_OFF and TIER_RERUN may, and saves a gradient-sized
 * array per shard.
 *
 * With a single rank the last segment's place is the gathered buffer itself, and a single shard writes straight into
 * it: nothing is copied. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/param.h"
#include "worker/ops/reduce.h"

struct comm;
struct device;
struct err;
struct gradients;
struct stress;

struct gradients_options {
    /* of the compute thread, of the communication thread; both stay the caller's and must outlive the gradients */
    struct device *dev, *side;
    struct comm *comm;   /* over device memory; COMM_GRAD is used by the communication thread alone */
    int nshards, nwaves; /* V, a power of two, at least the number of ranks; W >= 1 */
    /* of the first bucket, of the others; 0: 1 MiB, 16 MiB. Not visible in the bits */
    size_t first_bytes, bucket_bytes;
    const struct stress *stress; /* of the memory of shards' gradients; NULL: no stress. Borrowed */
    bool hashes;                 /* gradients_hashes() will be asked for */
};

/* Runs the collectives once, with zeros, on a device with memory of its own.
 * params: all parameters of the model in order of param.index. Parameters that do not train (running statistics, frozen
 * ones) have no gradient and are skipped. The array is copied, the parameters stay the caller's. All ranks must open
 * alike, while no operation is under way. */
int gradients_open(const struct gradients_options *opt, struct param *const *params, int nparams, struct gradients **ret_gradients,
                   struct err *err);
/* May be called in the middle of a step; then it aborts the comm. The comm may be closed after it, not before. NULL is
 * ignored. */
void gradients_close(struct gradients *g);

/* Starts a step: gradients of the step before are gone. The device's tier must not change until gradients_wait(). */
void gradients_begin(struct gradients *g);
/* Starts a wave; the shards it expects are wave_shards(). Waves come in ascending order, empty ones may be left out. */
void gradients_wave(struct gradients *g, int wave);
/* Memory for the gradient of p of local shard `shard` of this wave (from 0), p->count floats, contents undefined; the
 * same address until gradients_ready(). If the device adds them, all shards have one address, and *ret_written tells
 * that an earlier wave's sum stands there, to be added to. NULL: the device has no memory. */
float *gradients_dest(struct gradients *g, const struct param *p, int shard, bool *ret_written);
/* The gradients of p of all shards of this wave are written (queued), zeros where a shard has none. Once per wave and
 * trainable parameter. Fails when a shard's memory was never asked for, or when the communication thread has failed. */
int gradients_ready(struct gradients *g, const struct param *p, struct err *err);
/* Waits until the communication thread has queued all its work; work queued on dev from now on comes after that. May be
 * called after the last wave only. Any error is final: the comm has failed, or backward was not complete. On a link
 * comm_check() of COMM_GRAD tells whether everything has arrived, once the host has waited for dev. */
int gradients_wait(struct gradients *g, struct err *err);
/* 0, or the communication thread's failure. Never waits. */
int gradients_state(struct gradients *g, struct err *err);
/* After gradients_wait(), until gradients_begin(): the sum over all shards of the job, p->count contiguous floats (not
 * divided by V). NULL: no gradient. */
float *gradients_sum(const struct gradients *g, const struct param *p);
/* Sums of squares of all gradients above, of 1024 elements each, in device memory: the input of op clip.
 * blocks[order[i]] belongs to block i of the flat space, order NULL: in order. */
struct square_sums {
    const double *blocks;
    const uint32_t *order;
    int n;
};
struct square_sums gradients_squares(const struct gradients *g);
/* Place of the hashes of p's gradient after gradients_wait(), for the blocks that this rank adds up; no blocks if it
 * adds up no part. The same in every step. */
struct hash_piece gradients_hashes(const struct gradients *g, const struct param *p, uint64_t kappa);
