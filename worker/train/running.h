/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/running.h - batch statistics of a step: where they stand in the record of a shard, one place for each use of each normalisation, and
 * the running statistics that follow from the records of all shards. */
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
    struct running_item *item; /* [nitems]: those of all first uses, of all second ones ...; none of frozen normalisations */
    int nitems;
    size_t *at;     /* [nnorms]: where the first use of each stands, doubles */
    size_t doubles; /* of a record */
    size_t widest;  /* of the places of those that are SyncBN */
};

/* The norms must outlive it. Closed also after a failure. */
int running_open(struct running *r, const struct norm *norms, int nnorms, struct err *err);
void running_close(struct running *r);
/* Where the statistics of normalisation `index` stand when it is used for the use'th time, from 0. */
size_t running_at(const struct running *r, int index, int use);
/* Running statistics take in those of every use, in the order of uses. records: of each shard of the job; momentum, skip: as norm's running. */
int running_update(const struct running *r, struct device *dev, const double *const *records, int nrecords, float momentum,
                   const int32_t *skip, struct err *err);
