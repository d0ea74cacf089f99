/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence.h - evidence: what each step of a run left, hashed, so that two runs can be compared number by number and the first that differs is
 * named. Rank 0 writes it into the job's folder; detctl, detd and a run that verifies another read it. Sources: specs determinism section 9; DESIGN
 * section 6.
 *
 *   evidence.json     the head: what the chain starts from, and which tensors there are
 *   evidence.log      the record of step s stands at (s - 1) * EVIDENCE_RECORD_BYTES, and is written over when the step is trained again. Where its
 *                     chain is another one then, the log ends there: records behind it, and details of such steps, are not there
 *   evidence.ring     the detail of the last EVIDENCE_RING steps: that of step s in place s % EVIDENCE_RING
 *   evidence.tensors  the detail of every EVIDENCE_EVERY-th step s, in place s / EVIDENCE_EVERY - 1
 *
 * Records and details are little endian, of one size in a run, and end with a check of their bytes: one that was cut short or never written is not there.
 * Averaged weights (train.ema) are in none of this: no step reads them. Those of a checkpoint are under the hashes of its manifest.
 * What is read may come from anybody: everything is bounded. Nothing in them depends on ranks, hosts or times but what says so. */
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

/* What the step came to, in the order in which it comes about. Each is one hash in the record; the detail says which of its parts. */
enum evidence_part {
    EVIDENCE_DATA,     /* of the samples; detail: by shard */
    EVIDENCE_LOSS,     /* of the terms of the loss, forward; detail: by shard */
    EVIDENCE_GRADIENT, /* of the sum over all shards; detail: by tensor. Zero in a step that was skipped, whose gradient is not finite */
    EVIDENCE_WEIGHT,   /* of parameters and running statistics after the update, not of their averages (train.ema); detail: by tensor */
    EVIDENCE_STATE,    /* of what else goes on to the next step; detail: enum evidence_state */
    EVIDENCE_PARTS
};
/* open log window; last and best validation; skipped steps */
enum evidence_state { EVIDENCE_WINDOW, EVIDENCE_VALIDATION, EVIDENCE_SKIPS, EVIDENCE_STATES };

struct evidence_record {
    int64_t step;
    int attempt, ranks; /* who trained it; not part of the chain, as tier is not */
    int tier;           /* enum tier */
    bool skipped;       /* the gradient was not finite */
    bool validated;     /* between the step before and this one there was a validation; not part of the chain */
    float lr, loss;     /* learning rate; total loss of the step */
    struct hash128 part[EVIDENCE_PARTS];
    struct hash128 chain; /* evidence_chain() of the step before's and of this record */
};

/* Arrays as the head says: [shards], [tensors]. */
struct evidence_detail {
    int64_t step;
    struct hash128 *data, *loss, *gradient, *weight;
    struct hash128 state[EVIDENCE_STATES];
};

struct evidence_tensor {
    char name[EVIDENCE_NAME]; /* printable ASCII, not "" */
    int64_t count;            /* elements, 1 or more */
    bool gradient;            /* it trains; one that does not has zero for a gradient's hash */
};

struct evidence_head {
    bool tensors;        /* level: there are hashes of gradients and weights, and details; else records of data, losses and state alone */
    struct hash128 spec; /* of the keys that decide the results */
    struct hash128 data; /* of the training set's index, and of the validation set's */
    int shards, ntensors;
    struct evidence_tensor *tensor; /* [ntensors], in forward order: gradients come about from the last to the first */
};

/* Chain: what a run with that head starts from (all of the head goes into it), and what a step makes of it (step, lr, loss, whether it was skipped, and all
 * parts). Equal chains: equal records of this step and all before. */
struct hash128 evidence_start(const struct evidence_head *h);
struct hash128 evidence_chain(struct hash128 before, const struct evidence_record *r);

/* Arrays for the head's shards and tensors, zeroed. -ENOMEM. */
int evidence_detail_new(const struct evidence_head *h, struct evidence_detail *ret, struct err *err);
void evidence_detail_free(struct evidence_detail *d);

/* ---- writing ---- */

/* Opens the files of `dir` for writing. Where the head that stands there is another one, and where there is none, a new run begins: older files are
 * emptied, *ret_anew is set. h is copied. Caller closes. Errors name the file, ERR_INPUT the member of h that cannot be. */
int evidence_log_open(const char *dir, const struct evidence_head *h, struct evidence_log **ret_log, bool *ret_anew, struct err *err);
void evidence_log_close(struct evidence_log *l);
/* Writes the detail of a step (NULL: level losses) and then its record; r->step is 1 .. EVIDENCE_MAX_STEPS. *ret_before: the record that stood there, step 0
 * where there was none. Where it has not this chain, or is damaged, records of later steps are dropped. Does not allocate. */
int evidence_log_write(struct evidence_log *l, const struct evidence_record *r, const struct evidence_detail *d,
                       struct evidence_record *ret_before, struct err *err);
/* Everything written so far is durable. */
int evidence_log_sync(struct evidence_log *l, struct err *err);

/* ---- reading, also while another process writes ---- */

/* ERR_INPUT, ERR_UNSUPPORTED (of a newer version), or -ENOENT with a sentence: there is no evidence. Caller closes. One thread at a time reads from e. */
int evidence_open(const char *dir, struct evidence **ret_evidence, struct err *err);
void evidence_close(struct evidence *e);
const struct evidence_head *evidence_head(const struct evidence *e);
/* Steps for which there may be records: 1 .. this. */
int64_t evidence_steps(const struct evidence *e);
/* The first step from this one on for which there may be a record: steps that are a hole in the file are passed over. */
int64_t evidence_next(const struct evidence *e, int64_t step);
/* Whether there is a good one of that step. */
bool evidence_read(const struct evidence *e, int64_t step, struct evidence_record *ret);
/* The records of n steps from `first` on, step 0 where there is no good one. */
void evidence_read_range(const struct evidence *e, int64_t first, int n, struct evidence_record *ret);
/* Whether it is kept, of a step up to evidence_steps(); ret as evidence_detail_new() made it. */
bool evidence_read_detail(const struct evidence *e, int64_t step, struct evidence_detail *ret);

/* ---- comparing ---- */

/* Besides the parts: a learning rate that differs where nothing does that came before the update. */
enum { EVIDENCE_RATE = EVIDENCE_PARTS };

/* Where two steps part. */
struct evidence_difference {
    int part;                  /* enum evidence_part, or EVIDENCE_RATE */
    bool located;              /* the rest is known */
    int shard;                 /* of data and loss: the first that differs; -1 elsewhere */
    enum evidence_state state; /* of EVIDENCE_STATE: the first that differs */
    /* Of gradients: the first that came about, the last in forward order. Of a loss: the same, of the gradients that differ with it; -1: none does. Of
     * weights: the first in forward order. Else -1. */
    int tensor;
    int ntensors; /* how many of them differ */
};
/* The first part in which they differ; false: in none. da, db NULL: not kept. h: of both; at level losses gradients and weights are left out. */
bool evidence_compare(const struct evidence_head *h, const struct evidence_record *a, const struct evidence_detail *da,
                      const struct evidence_record *b, const struct evidence_detail *db, struct evidence_difference *ret);
/* "gradient of backbone.3.conv.weight (7 of 46 tensors)", in buf. */
const char *evidence_difference_text(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size);
/* Of a loss ", then gradient of head.bias (7 of 46 tensors)", as what shards lose does not say where; "" elsewhere. In buf. */
const char *evidence_difference_then(const struct evidence_head *h, const struct evidence_difference *d, char *buf, size_t size);
/* Of a part or EVIDENCE_RATE: "data", "loss", "gradient", "rate", "update", "state"; of a tier: "off", ...; of a state: "window", ... */
const char *evidence_part_name(int part);
const char *evidence_state_name(enum evidence_state state);
