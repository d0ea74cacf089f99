/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/statistics.h - batch statistics of the normalisations, on the
 * device: of all shards of the job, gathered once a step, for the running values; and inside a step, for normalisations
 * over all shards (SyncBN). */
#pragma once
#include <stdint.h>

#include "worker/core/shards.h"
#include "worker/layers/tape.h"

struct comm;
struct device;
struct err;
struct model;
struct statistics;

struct statistics_options {
    struct device *dev;
    struct comm *link; /* over device memory */
    const struct model *model;
    int shards, waves; /* of the job */
};

/* ERR_UNSUPPORTED: a normalisation is over all shards of the job, but these are more than one wave. Everything in opt
 * is borrowed. All ranks must open alike, while no operation is under way. Caller closes. */
int statistics_open(const struct statistics_options *opt, struct statistics **ret_statistics, struct err *err);
/* NULL is ignored. */
void statistics_close(struct statistics *s);

/* Destination of count, mean and M2 of a shard of this rank, [2c + 1], at the use'th use of normalisation `index`, from
 * 0. */
double *statistics_dest(struct statistics *s, int index, int use, int shard);
/* Every rank merges the same numbers of all shards of the job in tree order: local[] has n for each shard of `wave`,
 * *ret takes n. For MERGE_MOMENTS n is 2c + 1. All ranks must call alike. */
int statistics_merge(struct statistics *s, enum merge_kind kind, struct span wave, const double *const *local, int n, double *ret,
                     struct err *err);
/* After the last wave: queues the gathering. */
int statistics_gather(struct statistics *s, struct err *err);
/* Updates the running values; `momentum` is the share of the new value. Changes nothing where *skip, in device memory,
 * is not 0. */
int statistics_update(struct statistics *s, float momentum, const int32_t *skip, struct err *err);
