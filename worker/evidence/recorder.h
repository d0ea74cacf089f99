/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/recorder.h - the evidence of a run as it is trained
 * (proto/evidence/evidence.h): every rank hashes its data, the hashes travel with the losses of the step, rank 0 writes
 * the record. In this way all ranks see if a rank has other weights than the rest. Rank 0 sees if a step that was
 * trained before, in this job or in the run it verifies, came out the same.
 *
 * A step is recorded when its losses are read, which is a step late (train/step.h). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash/hash.h"
#include "worker/core/device.h"

struct batch;
struct err;
struct gradients;
struct jobspec;
struct model;
struct optimizer;
struct proof;
struct recorder;
struct report;
struct state;

struct recorder_options {
    const struct jobspec *spec;
    struct device *dev;
    const struct model *model;
    const struct gradients *gradients;
    struct optimizer *optimizer;
    struct report *report;
    const char *job_dir;
    struct hash128 data; /* of all data in the data sets */
    int rank, nranks, attempt, shards;
};

/* With level off a recorder is opened too; all functions below then do nothing. Everything in opt is borrowed. All
 * ranks must open alike. Caller closes. ERR_INPUT: errand.evidence names no evidence, this job's own, or that of a run
 * with another spec, data or network. */
int recorder_open(const struct recorder_options *opt, struct recorder **ret_recorder, struct err *err);
/* NULL is ignored. */
void recorder_close(struct recorder *r);
/* The recorder's part of a checkpoint, filled by recorder_begin() and recorder_step(). NULL: level off. */
struct proof *recorder_proof(struct recorder *r);
/* To be called before the first step: `step` steps are complete, the weights are on the device, and the proof is as the
 * checkpoint had it. ERR_CORRUPT: the weights differ from the saved ones; names the first. Events tell where the chain
 * of an earlier attempt does not fit. */
int recorder_begin(struct recorder *r, int64_t step, struct err *err);

/* Bytes that a rank sends along with its losses. */
size_t recorder_bytes(const struct recorder *r);
/* Hashes the samples of a batch, before its memory is used again. */
void recorder_batch(struct recorder *r, const struct batch *b);
/* To be called after the update of a step was queued. Does not wait. */
int recorder_send(struct recorder *r, struct err *err);
/* Waits for the hashes sent last, for `step`, and writes this rank's bytes for the others, recorder_bytes() at ret. */
int recorder_take(struct recorder *r, int64_t step, void *ret, struct err *err);

/* Data of a step that all ranks have once its losses are gathered. */
struct recorder_step {
    int64_t step;
    const void *const *heads;    /* [nranks]: the bytes that each sent along */
    const double *const *losses; /* [shards][2 * model->nterms] */
    const struct state *state;   /* including the losses and skips of the step */
    double loss;                 /* total of the step */
    float lr;
    int tier;
    bool skipped;
};
/* Rank 0 compares the step with its known record; recorder_write() writes it. ERR_DEVICE, or ERR_INPUT if
 * run.on_corruption is fail: the ranks' weights differ; names rank, step and tensor. ERR_INPUT: the step differs from
 * that of the run being verified. */
int recorder_step(struct recorder *r, const struct recorder_step *s, struct err *err);
/* Writes the step last given to recorder_step(), if it is not written yet; to be called once the device has work. */
int recorder_write(struct recorder *r, struct err *err);
/* If another run is verified: the tier of its step. false: it has no record of the step, or no run is verified. */
bool recorder_tier(const struct recorder *r, int64_t step, enum tier *ret);
/* If another run is verified: does a validation follow that matters for a later step? */
bool recorder_validates(const struct recorder *r, int64_t step, bool *ret);
/* Rank 0: the result of verifying so far, in a sentence; "" if no run is verified. */
const char *recorder_verdict(const struct recorder *r);
/* Makes all written records durable: before a checkpoint. */
int recorder_sync(struct recorder *r, struct err *err);
