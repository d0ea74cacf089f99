/* SPDX-License-Identifier: Apache-2.0 */ /* worker/gradients/layout.h - the place of every gradient, and the order of
 * additions. Static. Pure: no device, no ranks that talk. Built once; the same on every rank except for its own
 * shards. */
#pragma once
#include <stddef.h>

#include "worker/core/param.h"
#include "worker/core/shards.h"
#include "worker/core/tree.h"
#include "worker/gradients/gradients.h"

/* Elements of a block: parameters start, chunks are cut, and squares are summed at multiples of it. */
enum { LAYOUT_BLOCK = 1024 };

/* A parameter's place. */
struct layout_entry {
    const struct param *param;
    size_t at; /* first element in the flat space */
    int bucket;
};

/* Consecutive entries, handed to the communication thread together; blocks [lo, hi) of the flat space. */
struct layout_bucket {
    size_t lo, hi;
    int nentries;
};

/* An addition of a wave: parts, ascending, become the segment [lo, hi) on `plane`. */
struct layout_fold {
    int lo, hi, plane;
    int first, nparts; /* in layout_wave.part */
};

struct layout_part {
    int lo, hi;
    int plane; /* an earlier wave's result; -1: a shard of this wave */
};

struct layout_wave {
    struct span shards;
    int *direct; /* [shards]: the plane to write a shard's gradient on; -1: it needs memory of its own until the fold */
    struct layout_fold *fold;
    struct layout_part *part;
    int nfolds, nparts;
};

struct layout {
    struct layout_entry *entry; /* in flat order: descending param.index */
    int *entry_of;              /* [params given]: entry of a param.index, -1: no gradient */
    struct layout_bucket *bucket;
    struct layout_wave *wave;
    int nentries, nparams, nbuckets, nwaves;
    size_t blocks; /* of the whole flat space */
    struct span shards;
    /* Planes are gradient-sized arrays: 0 .. nsegments - 1 are this rank's canonical segments, which peers read; the
     * rest hold partial sums between waves and are private. */
    int nsegments, nplanes;
};

int layout_new(const struct gradients_options *opt, int rank, int nranks, struct param *const *params, int nparams,
               struct layout **ret_layout, struct err *err);
void layout_free(struct layout *p);

/* First block of rank j's chunk of a bucket; j = nranks gives the end. */
size_t layout_chunk(const struct layout_bucket *b, int j, int nranks);
