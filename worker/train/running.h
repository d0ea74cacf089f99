/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/running.h - batch statistics of a step: their places in the
 * record of a shard, one for each use of each normalisation, and the running statistics that follow from the records of
 * all shards. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct device;
struct err;
struct norm;
struct running_item;

struct running {
    const struct norm *norms; /* the model's */
    int nnorms;
    /* [nitems]: first all first uses, then all second uses ...; frozen normalisations have no items */
    struct running_item *item;
    int nitems;
    size_t *at;     /* [nnorms]: place of each one's first use, in doubles */
    size_t doubles; /* of a record */
    size_t widest;  /* widest place of a SyncBN normalisation */
};

/* The norms must outlive it. Must be closed also after a failure. */
int running_open(struct running *r, const struct norm *norms, int nnorms, struct err *err);
void running_close(struct running *r);
/* Place of the statistics of normalisation `index` at its use'th use, from 0. */
size_t running_at(const struct running *r, int index, int use);
/* Updates running statistics with those of every use, in the order of uses. records: of each shard of the job;
 * momentum, skip: see norm's running. */
int running_update(const struct running *r, struct device *dev, const double *const *records, int nrecords, float momentum,
                   const int32_t *skip, struct err *err);
