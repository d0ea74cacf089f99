/* SPDX-License-Identifier: Apache-2.0 */ /* worker/core/shards.h - shards: images of a batch that are computed
 * together. They are cut from the batch alone, and dealt to ranks and waves. A shard's bits depend on nothing else, so
 * they are the same on every rank. Pure. */
#pragma once

/* Shards or waves [lo, hi). */
struct span {
    int lo, hi;
};

/* The shards of a rank in a training step: [rV/P, (r+1)V/P), floor. */
struct span rank_shards(int rank, int nranks, int nshards);
/* The rank that has a shard. */
int rank_of_shard(int shard, int nranks, int nshards);
/* The shards of wave w of W, for a rank with the shards `rank` (global numbers). Waves may be empty, but the last never
 * is. */
struct span wave_shards(struct span rank, int wave, int nwaves);

/* Validation: shards of `batch` images, the last may be shorter. */
int val_shards(int nimages, int batch);
/* Number of validation shards of a rank. It takes every nranks-th from its own number on: shard q is the (q /
 * nranks)-th of rank q % nranks. */
int val_shards_of_rank(int nshards, int rank, int nranks);
