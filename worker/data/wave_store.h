/* SPDX-License-Identifier: Apache-2.0 */ /* worker/data/wave_store.h - host memory of one wave. Each sample has its own
 * place in every array, with room for its most rows, so that threads never meet. When all are made, the gaps between
 * them are closed and the offset lists filled in. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/data/make/batch.h"

struct device;
struct err;
struct sample;
struct task;
struct wave_store;

/* Room for so many images and shards of a task. The memory is dev's host_alloc(), so that it can be copied without a
 * stop; NULL: plain memory. Caller frees; task and dev outlive it. NULL: out of memory. */
struct wave_store *wave_store_new(const struct task *task, struct device *dev, int images, int shards);
void wave_store_free(struct wave_store *s);
/* Starts anew: no shards. */
void wave_store_clear(struct wave_store *s);
/* Begins the next shard: sets ret's number, images, canvas and the places of its arrays and lists; rows follow in
 * wave_store_close_up(). Its first image is the wave's image *ret_first. */
void wave_store_add(struct wave_store *s, int shard, int n, struct canvas canvas, struct shard_batch *ret, int *ret_first);
/* Place of image i of a shard with the first image `first`. */
void wave_store_place(struct wave_store *s, const struct shard_batch *b, int first, int i, struct sample *ret);
/* To be called when image i of the wave is made, with its index: counts its rows. ERR_DATA: a list has more rows than
 * there is room for; names data set, sample and list. */
int wave_store_count(struct wave_store *s, int i, struct err *err);
/* To be called when all samples of a shard are made and counted. */
void wave_store_close_up(struct wave_store *s, struct shard_batch *b, int first);
