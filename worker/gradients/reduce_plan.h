/* worker/gradients/reduce_plan.h - where every gradient lies and what is added to what: the static part of the reduction. Pure: no device, no
 * ranks that talk. Built once, the same on every rank up to which shards are its own. */
#pragma once
#include <stddef.h>

#include "worker/core/param.h"
#include "worker/core/shards.h"
#include "worker/core/tree.h"
#include "worker/gradients/reduce.h"

/* Elements of a block: parameters start at, chunks are cut at, and squares are summed over multiples of it. */
enum { REDUCE_BLOCK = 1024 };

/* A parameter's place. */
struct plan_entry {
    const struct param *param;
    size_t at; /* first element in the flat space */
    int bucket;
};

/* Consecutive entries, handed to the communication thread together; blocks [lo, hi) of the flat space. */
struct plan_bucket {
    size_t lo, hi;
    int nentries;
};

/* One addition of a wave: parts, ascending, become the segment [lo, hi) on `plane`. */
struct plan_fold {
    int lo, hi, plane;
    int first, nparts; /* in plan_wave.part */
};

struct plan_part {
    int lo, hi;
    int plane; /* an earlier wave's result; -1: a shard of this wave */
};

struct plan_wave {
    struct span shards;
    int *direct; /* [shards]: the plane a shard's gradient is written on, -1: it needs memory of its own until the fold */
    struct plan_fold *fold;
    struct plan_part *part;
    int nfolds, nparts;
};

struct plan {
    struct plan_entry *entry; /* in flat order: descending param.index */
    int *entry_of;            /* [params given]: entry of a param.index, -1: no gradient */
    struct plan_bucket *bucket;
    struct plan_wave *wave;
    int nentries, nparams, nbuckets, nwaves;
    size_t blocks; /* of the whole flat space */
    struct span shards;
    /* Planes are gradient-sized arrays: 0 .. nsegments - 1 are this rank's canonical segments, which peers read; the rest hold partial sums
     * between waves and are private. */
    int nsegments, nplanes;
};

int plan_new(const struct reduce_options *opt, int rank, int nranks, struct param *const *params, int nparams, struct plan **ret_plan,
             struct err *err);
void plan_free(struct plan *p);

/* First block of rank j's chunk of a bucket; j = nranks gives the end. */
size_t plan_chunk(const struct plan_bucket *b, int j, int nranks);
