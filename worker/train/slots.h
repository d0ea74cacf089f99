/* worker/train/slots.h - scalars travel in slots: one record of doubles per shard of the job and a few words per rank, all-gathered as
 * bytes once a step and added by whoever reads them, in tree order in fp64. So loss terms, batch statistics and control are the same on
 * every rank, to the bit, for any number of ranks.
 *
 * A step fills its own shards' records and its own words, then calls slots_exchange(). What was exchanged last is read with age 0,
 * what was exchanged before that with age 1, so that the host can read a step late; pointers live until the next slots_exchange().
 * Three buffers take turns: one that is filled, two that are read. Several slots may live side by side (training, SyncBN,
 * validation); all are exchanged by the thread of COMM_SYNC, in the same order on all ranks. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "worker/core/shards.h"

struct comm;
struct err;
struct slots;

enum { SLOT_WORDS = 4 }; /* per rank; what they mean is the trainer's: rank 0's first one is the control word */

/* nrecords: V, the shards of the job, or any other fixed cut of work, dealt to the ranks like shards (rank_shards(): a rank may have none).
 * record: doubles of one. All ranks open alike while no operation is under way. Caller closes; the comm outlives it. */
int slots_open(struct comm *c, int nrecords, size_t record, struct slots **ret_slots, struct err *err);
void slots_close(struct slots *s);

/* The records of this rank. */
struct span slots_mine(const struct slots *s);
/* What this rank fills before the next exchange: a record of its own, [record] doubles, and [SLOT_WORDS] words. Contents undefined. */
double *slots_record(struct slots *s, int index);
uint64_t *slots_words(struct slots *s);
/* Makes all ranks' records and words readable by all. */
int slots_exchange(struct slots *s, struct err *err);

/* Any rank's, after at least age + 1 exchanges. */
const double *slots_read(const struct slots *s, int age, int index);
const uint64_t *slots_read_words(const struct slots *s, int age, int rank);
/* The tree over all records of the double at offset `at`. */
double slots_sum(const struct slots *s, int age, size_t at);
/* ret[j] = the same for count doubles from `at` on. */
void slots_sum_rows(const struct slots *s, int age, size_t at, size_t count, double *ret);
/* The batch statistics [2c + 1] of all records merged (tree_moments()). */
void slots_moments(const struct slots *s, int age, size_t at, int c, double *ret);
/* rows[i] = the doubles of record i from `at` on, [nrecords] pointers for device ops that take all shards' statistics. */
void slots_rows(const struct slots *s, int age, size_t at, const double **ret_rows);
