/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/statistics.h - batch statistics of the normalisations, on the device: of all shards of the job, gathered once a step, for the running
 * values; and inside a step, for normalisations that take all shards' statistics (SyncBN). */
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

/* ERR_UNSUPPORTED: normalisations over all shards of the job, which then must be one wave. Everything in opt is borrowed. All ranks open alike, while no operation is under way. Caller closes. */
int statistics_open(const struct statistics_options *opt, struct statistics **ret_statistics, struct err *err);
/* NULL is nothing. */
void statistics_close(struct statistics *s);

/* Where forward leaves count, mean and M2 of a shard of this rank, [2c + 1], when normalisation `index` is used for the use'th time, from 0. */
double *statistics_dest(struct statistics *s, int index, int use, int shard);
/* The same numbers of all shards of the job, merged in tree order by every rank: local[] has n of each shard of `wave`, *ret takes n. Of MERGE_MOMENTS
 * n is 2c + 1. All ranks call alike. */
int statistics_merge(struct statistics *s, enum merge_kind kind, struct span wave, const double *const *local, int n, double *ret,
                     struct err *err);
/* After the last wave: queues the gathering. */
int statistics_gather(struct statistics *s, struct err *err);
/* Moves the running values, of which `momentum` is the new one's part; not where *skip, device memory, is not 0. */
int statistics_update(struct statistics *s, float momentum, const int32_t *skip, struct err *err);
