/* SPDX-License-Identifier: Apache-2.0 */ /* worker/checkpoint/state.h - what a job goes on from: its counters and sums, what the optimizer keeps, and the weights, to and from checkpoints. A
 * resumed run is the uninterrupted one, to the bit, rows included. */
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

/* What evidence of a run a checkpoint holds, so that who goes on from it can tell that it was read as it was written. */
struct proof {
    bool known;             /* the checkpoint had it */
    bool shorter;           /* the checkpoint is of this job with fewer steps: its chain has another start */
    struct hash128 chain;   /* proto/evidence/evidence.h */
    struct hash128 *weight; /* [model->nparams] of the parameters as they are trained; NULL: none are kept */
};

#define STATE_METRIC \
    "best" /* the metric that the best validation is the best of, in the metadata of state.safetensors; not there: the loss is */
#define STATE_JOB "job" /* the job, in the metadata of state.safetensors */

struct state {
    int64_t step;         /* completed */
    int64_t skips;        /* the last so many steps were skipped: their gradient was not finite */
    struct window window; /* open log window */
    double
        best; /* lowest validation loss of those that have a checkpoint, or best of the metric checkpoint.best; INFINITY before the first */
    int64_t best_step, val_step; /* of it; of the last validation, -1 before the first */
    double val_loss;             /* of the last validation, NAN before the first */
    double score;                /* of the last validation of this attempt, what the best one is found by */
    double
        due_best; /* as best, of those by val.every, with train.stop_after alone: others are asked for, and another run may have none of them */
    int64_t due_best_step; /* 0: before the first */
    int64_t stale;         /* validations by val.every since that one */
    struct proof *proof;   /* the recorder's; NULL: no evidence is kept */
};

/* What a checkpoint says of the best validation up to it. */
struct state_best {
    int64_t step;    /* 0: there was none */
    double value;    /* lowest loss, or best of the metric */
    char metric[64]; /* checkpoint.best; "": the loss */
};
struct safetensors;
/* From the file state.safetensors of one; false: it does not say. */
bool state_best(const struct safetensors *f, struct state_best *ret);

/* Of a job that begins. nterms: the model's losses. */
void state_init(struct state *s, int nterms);

/* Whose arrays a checkpoint holds besides; all are the caller's. */
struct trained {
    const struct jobspec *spec;
    struct device *dev;
    struct model *model;
    struct optimizer *optimizer;
    const struct dataset *classes; /* whose classes predict is to know */
    const char *job;               /* owner_text(), kept for who has to say what differs; NULL: not kept */
};

/* As ckpt_write(), of step s->step. */
int state_save(const struct state *s, const struct trained *of, const char *dir, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err);
/* From the checkpoint of `step`, as ckpt_open(), into state, weights and optimizer; ret_bytes: of its files. After a failure all of them are unknown. */
int state_load(struct state *s, const struct trained *to, const char *dir, int64_t step, const struct ckpt_identity *id, int64_t *ret_bytes,
               struct err *err);
