/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence.h - evidence: hashes of the results of each step of
 * a run, so that two runs can be compared number by number and the first difference is named. Rank 0 writes it into the
 * job's folder. detctl, detd and a run that verifies another read it. Sources: specs determinism section 9; DESIGN
 * section 6.
 *
 *   evidence.json     the head: the start of the chain, and the list of tensors
 *   evidence.log      the record of step s is at (s - 1) * EVIDENCE_RECORD_BYTES, and is overwritten when the step is
 *                     trained again. If its chain then differs, the log ends there: readers ignore later records, and
 *                     the details of later steps
 *   evidence.ring     the details of the last EVIDENCE_RING steps: step s in place s % EVIDENCE_RING
 *   evidence.tensors  the detail of every EVIDENCE_EVERY-th step s, in place s / EVIDENCE_EVERY - 1
 *
 * Records and details are little endian and have one size in a run. Each ends with a check of its bytes: a reader
 * ignores a record or detail that was cut short or never written. Averaged weights (train.ema) are not part of the
 * evidence, since no step reads them. The manifest of a checkpoint has their hashes. The files may come from an
 * untrusted source, so every size is bounded. Nothing in them depends on ranks, hosts or times, except the members that
 * name these. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hash/hash.h"

struct err;
struct evidence;
struct evidence_log;

enum { EVIDENCE_FORMAT = 1, EVIDENCE_RECORD_BYTES = 128, EVIDENCE_RING = 256, EVIDENCE_EVERY = 100 };
enum { EVIDENCE_MAX_TENSORS = 1 << 16, EVIDENCE_MAX_SHARDS = 64, EVIDENCE_NAME = 96, EVIDENCE_MAX_STEPS = 100000000 };

/* The parts of a step's results, in the order in which they arise. Each is one hash in the record; the detail tells the
 * place inside the part. */
enum evidence_part {
    EVIDENCE_DATA,     /* of the samples; detail: by shard */
    EVIDENCE_LOSS,     /* of the terms of the loss, forward; detail: by shard */
    EVIDENCE_GRADIENT, /* of the sum over all shards; detail: by tensor. Zero in a step that was skipped since its gradient is not finite */
    EVIDENCE_WEIGHT,   /* of parameters and running statistics after the update, not of their averages (train.ema); detail: by tensor */
    EVIDENCE_STATE,    /* of the other state that the next step uses; detail: enum evidence_state */
    EVIDENCE_PARTS
};
/* open log window; last and best validation; skipped steps */
enum evidence_state { EVIDENCE_WINDOW, EVIDENCE_VALIDATION, EVIDENCE_SKIPS, EVIDENCE_STATES };

struct evidence_record {
    int64_t step;
    int attempt, ranks; /* the attempt that trained it, and its ranks; like tier, not part of the chain */
    int tier;           /* enum tier */
    bool skipped;       /* the gradient was not finite */
    bool validated;     /* there was a validation between the step before and this one; not part of the chain */
    float lr, loss;     /* learning rate; total loss of the step */
    struct hash128 part[EVIDENCE_PARTS];
    struct hash128 chain; /* evidence_chain() of the chain of the step before and this record */
};

/* The arrays have the lengths of the head: [shards], [tensors]. */
struct evidence_detail {
    int64_t step;
    struct hash128 *data, *loss, *gradient, *weight;
    struct hash128 state[EVIDENCE_STATES];
};

struct evidence_tensor {
    char name[EVIDENCE_NAME]; /* printable ASCII, not "" */
    int64_t count;            /* elements, 1 or more */
    bool gradient;            /* it trains; for other tensors the gradient's hash is zero */
};

struct evidence_head {
    bool tensors;        /* level; true: hashes of gradients and weights, and details; false: only records of data, losses and state */
    struct hash128 spec; /* of the keys that decide the results */
    struct hash128 data; /* of the training set's index, and of the validation set's */
    int shards, ntensors;
    struct evidence_tensor *tensor; /* [ntensors], in forward order; gradients arise from the last to the first */
};

/* The chain: evidence_start() is its begin for a run with that head (all of the head goes in). evidence_chain() adds a
 * step (step, lr, loss, whether it was skipped, and all parts). Equal chains mean equal records of this step and all
 * before. */
struct hash128 evidence_start(const struct evidence_head *h);
struct hash128 evidence_chain(struct hash128 before, const struct evidence_record *r);

/* Arrays for the head's shards and tensors, zeroed. -ENOMEM. */
int evidence_detail_new(const struct evidence_head *h, struct evidence_detail *ret, struct err *err);
void evidence_detail_free(struct evidence_detail *d);

/* ---- writing ---- */

/* Opens the files of `dir` for writing. If the head there is a different one or missing, a new run begins: older files
 * are emptied, and *ret_anew is set. Copies h. Caller closes. Errors name the file; ERR_INPUT names the invalid member
 * of h. */
int evidence_log_open(const char *dir, const struct evidence_head *h, struct evidence_log **ret_log, bool *ret_anew, struct err *err);
void evidence_log_close(struct evidence_log *l);
/* Writes the detail of a step (NULL: level losses) and then its record; r->step is 1 .. EVIDENCE_MAX_STEPS.
 * *ret_before: the record that was there before, with step 0 if there was no record. If that record has another chain,
 * or is damaged, the records of later steps are dropped. Does not allocate. */
int evidence_log_write(struct evidence_log *l, const struct evidence_record *r, const struct evidence_detail *d,
                       struct evidence_record *ret_before, struct err *err);
/* Makes everything written so far durable. */
int evidence_log_sync(struct evidence_log *l, struct err *err);

/* ---- reading, also while another process writes ---- */

/* Opens the evidence in `dir`. ERR_INPUT, ERR_UNSUPPORTED (of a newer version), or -ENOENT with a sentence: there is no
 * evidence. Caller closes. Only one thread at a time may read from e. */
int evidence_open(const char *dir, struct evidence **ret_evidence, struct err *err);
void evidence_close(struct evidence *e);
const struct evidence_head *evidence_head(const struct evidence *e);
/* Steps for which there may be records: 1 .. this. */
int64_t evidence_steps(const struct evidence *e);
/* The first step from this one on for which there may be a record. Skips steps that are a hole in the file. */
int64_t evidence_next(const struct evidence *e, int64_t step);
/* Whether there is a valid record of that step. */
bool evidence_read(const struct evidence *e, int64_t step, struct evidence_record *ret);
/* Reads the records of n steps from `first` on; a record has step 0 if there is no valid one. */
void evidence_read_range(const struct evidence *e, int64_t first, int n, struct evidence_record *ret);
/* Whether the detail of a step up to evidence_steps() is kept, and if so reads it. ret is made by
 * evidence_detail_new(). */
bool evidence_read_detail(const struct evidence *e, int64_t step, struct evidence_detail *ret);

/* ---- comparing ---- */

/* A further part of a difference: the learning rate differs while all parts before the update are equal. */
enum { EVIDENCE_RATE = EVIDENCE_PARTS };

/* The place of the first difference between two steps. */
struct evidence_difference {
    int part;                  /* enum evidence_part, or EVIDENCE_RATE */
    bool located;              /* the members below are known */
    int shard;                 /* of data and loss: the first shard that differs; otherwise -1 */
    enum evidence_state state; /* of EVIDENCE_STATE: the first state that differs */
    /* In gradients: the tensor of the differing gradient that arose first, which is the last in forward order. In a
     * loss: the same, among the gradients that differ too; -1: all gradients are equal. In weights: the first tensor in
     * forward order. Otherwise -1. */
    int tensor;
    int ntensors; /* the number of tensors that differ */
};
/* Finds the first part that differs; false: all are equal. da, db NULL: not kept. h: of both; at level losses gradients
 * and weights are left out. */
bool evidence_compare(const struct evidence_head *h, const struct evidence_record *a, const struct evidence_detail *da,
                      const struct evidence_record *b, const struct evidence_detail *db, struct evidence_difference *ret);
/* "gradient of backbone.3.conv.weight (7 of 46 tensors)", in buf. */
const char *evidence_difference_text(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size);
/* For a loss ", then gradient of head.bias (7 of 46 tensors)", since the loss of a shard does not tell the place.
 * Otherwise "". In buf. */
const char *evidence_difference_then(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size);
/* Name of a part or EVIDENCE_RATE: "data", "loss", "gradient", "rate", "update", "state"; of a state:
 * "window", ... */
const char *evidence_part_name(int part);
const char *evidence_state_name(enum evidence_state state);
