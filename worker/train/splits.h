/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/splits.h - the data of a job: checked once in its life, then
 * decoded and sent to the device while other data is computed. */
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
    struct hash128 hash;   /* hash of the set's contents, see index_hash() */
    struct task *task;     /* NULL: there is no set, or before splits_sample() */
    struct loader *loader; /* NULL, as feed is: before it begins, or when no step is left */
    struct feed *feed;
};

/* Reads the index of each split of the job. If a split has no index yet, rank 0 checks the split, reports the result
 * and writes the index. A training set of another hash than errand.data_hash is ERR_DATA. All ranks must open alike.
 * Must be closed with split_close(), also after a failure; machine and everything it borrows must outlive them. */
int splits_open(const struct machine *m, struct split *ret_train, struct split *ret_val, struct err *err);
/* For a job that evaluates another job's checkpoint: opens its only split. */
int splits_open_val(const struct machine *m, struct split *ret_val, struct err *err);
/* Sets up the samples of each split in the form that the model wants. */
int splits_sample(const struct machine *m, const struct course *course, const struct model *model, struct split *train, struct split *val,
                  struct err *err);
/* Starts decoding; training starts at step `first`. */
int splits_begin(const struct machine *m, const struct course *course, int64_t first, struct split *train, struct split *val,
                 struct err *err);
void split_close(struct split *s);
