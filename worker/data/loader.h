/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/loader.h - batches of a task's samples, made ahead of time by
 * threads of its own. A batch depends on (samples, seed, step) alone: results are placed by index, so neither threads
 * nor order of arrival nor the number of ranks change a bit.
 *
 * Two streams. Training: shards [shard_lo, shard_hi) of `shards` of every step, cut into waves, for ever. Validation:
 * the data set in its order, cut into shards of `batch` images; this rank takes shards q with q mod ranks == rank; one
 * pass, then loader_rewind(). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "worker/data/make/batch.h"
#include "worker/data/set/dataset.h"

struct device;
struct err;
struct loader;
struct stress;
struct task;

struct loader_options {
    bool train; /* false: validation */
    int batch;  /* training: images of the global batch; validation: of one val shard */
    /* training */
    int shards, shard_lo, shard_hi; /* in the whole job, and this rank's */
    int waves;
    int64_t first_step, steps; /* first step to deliver, counted from 1; all steps of the job */
    bool hashes;               /* shard_batch.hash is wanted */
    /* a sample with a file that cannot be read any more: BAD_ERROR, or BAD_SKIP: the next readable sample takes its
     * place */
    enum bad_policy on_bad;
    /* validation */
    int rank, ranks;
    /* both */
    /* batches lie in its host_alloc() memory; NULL: in plain memory. Outlives the loader */
    struct device *dev;
    int workers;                 /* decoding threads, >= 1 */
    const struct stress *stress; /* forces the order in which images are taken and made; NULL: no stress. Borrowed */
};

enum { LOADER_END = 1 };

/* Starts the threads. The task outlives the loader. ERR_INPUT: options that do not fit each other; ERR_DATA: no
 * samples. */
int loader_open(struct task *task, const struct loader_options *opt, struct loader **ret_loader, struct err *err);
/* Stops and joins the threads; they finish their current work first. NULL is ignored. */
void loader_close(struct loader *l);
/* The next wave, or LOADER_END after the last validation shard of this rank. *ret is borrowed until the next call.
 * Errors name the file (ERR_DATA) and repeat on further calls. */
int loader_next(struct loader *l, struct batch *ret, struct err *err);
/* Would loader_next() return without waiting? */
bool loader_ready(struct loader *l);
/* Validation: the next loader_next() starts a new pass. */
void loader_rewind(struct loader *l);
