/* SPDX-License-Identifier: Apache-2.0 */ /* worker/gradients/allreduce.h - the communication thread: sums the buckets
 * of a step over the ranks while backward runs, and their squares at the end. The compute thread calls the functions
 * below; it hands over a bucket with a mark that the `side` device waits for. */
#pragma once
#include <stdbool.h>

#include "worker/gradients/gradients.h"

struct allreduce;
struct layout;

/* layout is borrowed. All ranks must open alike, while no operation is under way; on a device with its own memory the
 * collectives run once, with zeros. */
int allreduce_open(const struct gradients_options *opt, const struct layout *layout, struct allreduce **ret_allreduce, struct err *err);
/* In the middle of a step it aborts the comm. NULL is ignored. */
void allreduce_close(struct allreduce *r);

/* Memory that peers read: the layout's nsegments planes, one behind the other. With a single rank the first is the sum
 * itself. */
float *allreduce_planes(const struct allreduce *r);
/* Starts a step. one_sum: each rank sends a single sum of all its shards, on the first plane; else its canonical
 * segments, one a plane. */
void allreduce_begin(struct allreduce *r, bool one_sum);
/* Buckets before n are computed, or at least queued: they are summed in their order. */
int allreduce_issue(struct allreduce *r, int n, struct err *err);
/* After the last bucket was handed over: waits until the thread has queued all its work; work queued on dev from now on
 * comes after that. If a bucket was not handed over it does not wait. A failure of the thread is final. */
int allreduce_wait(struct allreduce *r, struct err *err);
/* 0, or the thread's failure. Never waits. err may be NULL. */
int allreduce_state(struct allreduce *r, struct err *err);
/* After allreduce_wait(), until allreduce_begin(): the whole flat space, and its squares. */
float *allreduce_sum(const struct allreduce *r);
struct square_sums allreduce_squares(const struct allreduce *r);
/* If hashes were asked for: the hashes of this rank's chunk of a bucket, block by block, from its first on; in device
 * memory, written like the squares. */
const struct hash128 *allreduce_hashes(const struct allreduce *r, int bucket);
