/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/make/batch.h - the data of a training step: a few named arrays
 * and named offset lists for each shard. A task (sample/task.h) defines and fills them, and a model asks for them by
 * name; loader and feed move them without knowing their meaning. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/hash/hash.h"
#include "worker/core/canvas.h"
#include "worker/core/tensor.h"

enum { BATCH_MAX_ARRAYS = 16, BATCH_MAX_LISTS = 8, BATCH_IMAGES = -1 };

/* An offset list: row r of its parent owns the list's rows offset[r] .. offset[r + 1] - 1. */
struct batch_list {
    const char *name;
    int of; /* its parent: BATCH_IMAGES, or a list before it */
};

struct batch_array {
    const char *name;
    enum dtype dtype;
    int of;      /* has a row for each image (BATCH_IMAGES), or for each row of a list */
    bool canvas; /* a row is a picture of the shard's canvas, [h][w][width]; only of images */
    int width;   /* elements of a row or pixel */
};

struct batch_form {
    int narrays, nlists;
    struct batch_array array[BATCH_MAX_ARRAYS];
    struct batch_list list[BATCH_MAX_LISTS];
};

/* A shard's part of a wave. Arrays and lists lie in host memory as the loader gives them, in device memory as the feed
 * does; all else is the host's. */
struct shard_batch {
    int shard; /* global number: training shard v, or validation shard q */
    int n;     /* images; only the last validation shard may be short */
    struct canvas canvas;
    const int32_t *index;       /* [n]: position of each sample in the data set */
    const struct hash128 *hash; /* [n]: of each sample as it was made; NULL: not asked for */
    /* in the order of the form. Pictures of the shards of a wave follow each other without a gap */
    void *array[BATCH_MAX_ARRAYS];
    int32_t *offset[BATCH_MAX_LISTS]; /* [rows of its parent + 1] */
    int rows[BATCH_MAX_LISTS];
};

/* With the seed it is the key of everything random: (seed, step, shard, index) in training, (seed, index) in
 * validation, which has no step. */
struct batch {
    const struct batch_form *form;
    uint64_t seed;
    int64_t step;  /* counted from 1; 0 in validation */
    int64_t epoch; /* of the first image */
    int wave;      /* of this step, 0 .. waves - 1; empty waves are not delivered */
    bool last;     /* last wave of the step, or last shard of the validation pass */
    int nshards;
    const struct shard_batch *shard; /* [nshards], ascending */
};

/* Index of an array or a list by its name; -1: the form does not have it. */
int batch_array_of(const struct batch_form *f, const char *name);
int batch_list_of(const struct batch_form *f, const char *name);
/* Rows of an array, or of a list's parent. of: BATCH_IMAGES or a list. */
static inline int batch_rows(const struct shard_batch *b, int of)
{
    return of == BATCH_IMAGES ? b->n : b->rows[of];
}
/* Bytes of an array in a shard. */
size_t batch_bytes(const struct batch_form *f, const struct shard_batch *b, int array);
/* An array as a tensor: [n, h, w, width] for pictures, else [rows, 1, 1, width]. */
struct tensor batch_tensor(const struct batch_form *f, const struct shard_batch *b, int array);
