/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/losses.h - the losses of a step: from each shard's results on
 * the device to numerators and denominators of all shards of the job, which every rank gets. Control words travel
 * along. */
#pragma once
#include <stddef.h>

struct comm;
struct device;
struct err;
struct losses;
struct model;

struct losses_options {
    struct device *dev;
    /* comm: over host memory; link: carries the step's other numbers, its failures show when the losses are read */
    struct comm *comm, *link;
    const struct model *model;
    int shards, images; /* of the job; of a shard */
    size_t head_bytes;  /* bytes that a rank sends along */
};

/* Everything in opt is borrowed. All ranks must open alike, while no operation is under way. Caller closes. */
int losses_open(const struct losses_options *opt, struct losses **ret_losses, struct err *err);
/* NULL is ignored. */
void losses_close(struct losses *l);

/* Destination of the model's losses for a shard of this rank, [model->raw_terms] in device memory. */
double *losses_raw(const struct losses *l, int shard);
/* After the last wave: starts sending the results to the host. */
int losses_send(struct losses *l, struct err *err);
/* The bytes that this rank sends along, to be filled before losses_gather(), and the bytes that a rank has sent. */
void *losses_head(struct losses *l);
const void *losses_read_head(const struct losses *l, int rank);
/* Waits until the results sent last have arrived; the next losses_gather() carries them, and the next losses_send() may
 * be called. */
int losses_take(struct losses *l, struct err *err);
/* Waits for the other ranks: gathers the heads, and the losses taken since the last gathering. If no losses were taken,
 * the functions below must not read any. */
int losses_gather(struct losses *l, struct err *err);

/* For this rank's shards, when other ranks can no longer be waited for: examines the losses of the last losses_send()
 * that no losses_gather() has carried. Returns like losses_nonfinite() below; -1 also if the device fails. */
int losses_own_nonfinite(struct losses *l, const double **ret_row);
/* Returns the first shard of the job with a term that is not finite; *ret_row: its terms, [2 * nterms]. -1: all are
 * finite. */
int losses_nonfinite(const struct losses *l, const double **ret_row);
/* Numerators and denominators of each shard, [2 * nterms], of all shards of the job. */
void losses_rows(const struct losses *l, const double **ret_rows);
/* Sums over all shards, in tree order: [2 * nterms], numerator and denominator of each term. */
void losses_sum(const struct losses *l, double *ret_sums);
