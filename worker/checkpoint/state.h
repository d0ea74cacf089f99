/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/state.h - the state from which a job continues: its
 * counters and sums, the optimizer's arrays, and the weights, to and from checkpoints. A resumed run equals the
 * uninterrupted one, to the bit, rows included. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/hash/hash.h"
#include "worker/report/window.h"

struct ckpt_identity;
struct dataset;
struct device;
struct err;
struct jobspec;
struct model;
struct optimizer;

/* A checkpoint's evidence of its run, by which the next attempt can check that it was read as it was written. */
struct proof {
    bool known;             /* the checkpoint had it */
    bool shorter;           /* the checkpoint is of this job with fewer steps: its chain has another start */
    struct hash128 chain;   /* proto/evidence/evidence.h */
    struct hash128 *weight; /* [model->nparams] hashes of the parameters in training; NULL: no hashes */
};

#define STATE_METRIC "best" /* metadata of state.safetensors: the metric of the best validation; missing: the loss */
#define STATE_JOB    "job"  /* the job, in the metadata of state.safetensors */

struct state {
    int64_t step;                /* completed */
    int64_t skips;               /* last steps in a row that were skipped: their gradient was not finite */
    struct window window;        /* open log window */
    double best;                 /* lowest loss with a checkpoint, or best checkpoint.best; INFINITY before the first */
    int64_t best_step, val_step; /* of the best; of the last validation, -1 before the first */
    double val_loss;             /* of the last validation, NAN before the first */
    double score;                /* of the last validation of this attempt, by which the best one is found */
    double due_best;             /* like best, only of validations by val.every, and only with train.stop_after */
    int64_t due_best_step;       /* 0: before the first */
    int64_t stale;               /* validations by val.every since then */
    struct proof *proof;         /* the recorder's; NULL: no evidence is kept */
};

/* A checkpoint's note on the best validation up to it. */
struct state_best {
    int64_t step;    /* 0: no best yet */
    double value;    /* lowest loss, or best of the metric */
    char metric[64]; /* checkpoint.best; "": the loss */
};
struct safetensors;
/* Reads it from a checkpoint's state.safetensors; false: the file does not have it. */
bool state_best(const struct safetensors *f, struct state_best *ret);

/* For a job that begins. nterms: the model's losses. */
void state_init(struct state *s, int nterms);

/* Owners of the other arrays of a checkpoint; all are the caller's. */
struct trained {
    const struct jobspec *spec;
    struct device *dev;
    struct model *model;
    struct optimizer *optimizer;
    const struct dataset *classes; /* source of the classes for predict */
    const char *job;               /* owner_text(), kept for messages on differences; NULL: not kept */
};

/* Like ckpt_write(), for step s->step. */
int state_save(const struct state *s, const struct trained *of, const char *dir, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err);
/* Loads the checkpoint of `step`, like ckpt_open(), into state, weights and optimizer; ret_bytes: of its files. After a
 * failure their contents are undefined. */
int state_load(struct state *s, const struct trained *to, const char *dir, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err);
