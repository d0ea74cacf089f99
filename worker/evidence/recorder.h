/* SPDX-License-Identifier: Apache-2.0 */ /* worker/evidence/recorder.h - the evidence of a run as it is trained (proto/evidence/evidence.h): every rank hashes what it has, the hashes travel with the losses of
 * the step, rank 0 writes the record. On the way all ranks see whether one of them has other weights than the rest, and rank 0 whether a step that was
 * trained before came out as it did then, in this job or in the one that it verifies.
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
    struct hash128 data; /* of all that is in the data sets */
    int rank, nranks, attempt, shards;
};

/* Level off opens a recorder too, for which everything below is nothing. Everything in opt is borrowed. All ranks open alike. Caller closes.
 * ERR_INPUT: errand.evidence names none, this job's own, or that of a run with another spec, data or network. */
int recorder_open(const struct recorder_options *opt, struct recorder **ret_recorder, struct err *err);
/* NULL is nothing. */
void recorder_close(struct recorder *r);
/* What checkpoints hold of it, filled by recorder_begin() and recorder_step(). NULL: level off. */
struct proof *recorder_proof(struct recorder *r);
/* Before the first step: `step` are complete, weights are on the device, the proof is as the checkpoint had it. ERR_CORRUPT: weights are not those that
 * were saved; names the first. Events tell where the chain of an earlier attempt does not fit. */
int recorder_begin(struct recorder *r, int64_t step, struct err *err);

/* Bytes that a rank sends along with its losses. */
size_t recorder_bytes(const struct recorder *r);
/* The samples of a batch, before its memory is used again. */
void recorder_batch(struct recorder *r, const struct batch *b);
/* After the update of a step was queued. Waits for nothing. */
int recorder_send(struct recorder *r, struct err *err);
/* Waits for what was sent last, of `step`, and fills in what this rank sends along, recorder_bytes() at ret. */
int recorder_take(struct recorder *r, int64_t step, void *ret, struct err *err);

/* What all ranks know of a step once its losses are gathered. */
struct recorder_step {
    int64_t step;
    const void *const *heads;    /* [nranks]: what each sent along */
    const double *const *losses; /* [shards][2 * model->nterms] */
    const struct state *state;   /* with the losses of the step, and skips, in it */
    double loss;                 /* total of the step */
    float lr;
    int tier;
    bool skipped;
};
/* Rank 0 holds the step against what is known of it, recorder_write() writes it. ERR_DEVICE or, where run.on_corruption says fail, ERR_INPUT: the ranks' weights differ; names rank, step and tensor. ERR_INPUT: the step differs from that of the run which this one verifies. */
int recorder_step(struct recorder *r, const struct recorder_step *s, struct err *err);
/* What recorder_step() was given last, where it is not written yet: once there is work for the device. */
int recorder_write(struct recorder *r, struct err *err);
/* Where another run is verified: the tier that its step had. false: it has no record of it, or none is verified. */
bool recorder_tier(const struct recorder *r, int64_t step, enum tier *ret);
/* Likewise: whether a validation follows that matters for a later step. */
bool recorder_validates(const struct recorder *r, int64_t step, bool *ret);
/* Rank 0: what verifying has come to so far, in a sentence; "" where nothing is verified. */
const char *recorder_verdict(const struct recorder *r);
/* What was written is durable: before a checkpoint. */
int recorder_sync(struct recorder *r, struct err *err);
