/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/splits.h - the data of a job: checked once in its life, then decoded and sent to the device while others are computed. */
#pragma once
#include <stdint.h>

#include "proto/hash/hash.h"

struct course;
struct dataset;
struct err;
struct feed;
struct loader;
struct machine;
struct model;
struct task;

struct split {
    struct dataset *set;   /* NULL: the job has no such split */
    struct hash128 hash;   /* of what the set holds, see index_hash() */
    struct task *task;     /* NULL: there is no set, or before splits_sample() */
    struct loader *loader; /* NULL, and no feed: before it begins, or where no step is left */
    struct feed *feed;
};

/* Reads the index of each split that the job has; where there is none yet rank 0 checks the split, says what it found and writes the index. A training
 * set of another hash than errand.data_hash is ERR_DATA. All ranks open alike. Closed with split_close(), also after a failure; machine and what it borrows outlive them. */
int splits_open(const struct machine *m, struct split *ret_train, struct split *ret_val, struct err *err);
/* Of a job that evaluates another's checkpoint, the one split that it has. */
int splits_open_val(const struct machine *m, struct split *ret_val, struct err *err);
/* What the samples of each split are, as the model wants them. */
int splits_sample(const struct machine *m, const struct course *course, const struct model *model, struct split *train, struct split *val,
                  struct err *err);
/* Decoding begins: of training at step `first`. */
int splits_begin(const struct machine *m, const struct course *course, int64_t first, struct split *train, struct split *val,
                 struct err *err);
void split_close(struct split *s);
