/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/losses.h - the losses of a step: from what each shard leaves on the device to numerators and denominators of all shards of the job, which
 * every rank has. Control words travel along. */
#pragma once
#include <stddef.h>

struct comm;
struct device;
struct err;
struct losses;
struct model;

struct losses_options {
    struct device *dev;
    struct comm *comm,
        *link; /* over host memory; what the step's other numbers travel over, whose failure shows when the losses are read */
    const struct model *model;
    int shards, images; /* of the job; of a shard */
    size_t head_bytes;  /* that a rank sends along */
};

/* Everything in opt is borrowed. All ranks open alike, while no operation is under way. Caller closes. */
int losses_open(const struct losses_options *opt, struct losses **ret_losses, struct err *err);
/* NULL is nothing. */
void losses_close(struct losses *l);

/* Where the model's loss() leaves what it has of a shard of this rank, [model->raw_terms] in device memory. */
double *losses_raw(const struct losses *l, int shard);
/* After the last wave: what is there starts on its way to the host. */
int losses_send(struct losses *l, struct err *err);
/* What this rank sends along, to be filled before losses_gather(), and what a rank has sent. */
void *losses_head(struct losses *l);
const void *losses_read_head(const struct losses *l, int rank);
/* Waits until what was sent last is there; the next losses_gather() carries it, and the next losses_send() may be called. */
int losses_take(struct losses *l, struct err *err);
/* Waits for the other ranks: the heads, and the losses taken since the last one. Where none were taken nothing may be read below. */
int losses_gather(struct losses *l, struct err *err);

/* Of this rank's shards, where no rank can be waited for any more: those of the last losses_send() that no losses_gather() has carried. As
 * losses_nonfinite() below; -1 also where the device fails. */
int losses_own_nonfinite(struct losses *l, int *ret_term);
/* Of a shard of the job that has a term which is not finite, *ret_term: the first such; -1: all are finite. */
int losses_nonfinite(const struct losses *l, int *ret_term);
/* Numerators and denominators of each shard, [2 * nterms], of all shards of the job. */
void losses_rows(const struct losses *l, const double **ret_rows);
/* Sums over all shards, in tree order: [2 * nterms], numerator and denominator of each term. */
void losses_sum(const struct losses *l, double *ret_sums);
