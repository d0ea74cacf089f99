/* SPDX-License-Identifier: Apache-2.0 */ /* worker/comm/gather.h - one all-gather of records: each rank fills its own,
 * then every rank reads all. Losses, batch statistics and control words travel in this way. Their readers add them in
 * tree order, so sums are the same on every rank, to the bit, for any number of ranks.
 *
 * A record has a fixed size and a number, and lies in memory of the comm: of the host, or of a device. On a device,
 * filling, moving and reading are work queued on the device of COMM_SYNC. A rank also has a head: bytes of its own
 * beside its records.
 *
 * A rank fills gather_record() and gather_head(); gather_all() makes them readable by all, until the next gather_all().
 * Two buffers take turns, so that the next records may be filled meanwhile. With one buffer, a later operation of the
 * comm's channel must lie between reading on any rank and filling. */
#pragma once
#include <stddef.h>

struct comm;
struct err;
struct gather;

/* Assignment of records to ranks; a rank may have no records. */
enum gather_deal {
    GATHER_BLOCKS, /* like shards of a step: rank_shards() */
    GATHER_TURNS,  /* like shards of a validation: rank q % nranks fills record q */
};

struct gather_options {
    struct comm *comm; /* outlives the gather; COMM_SYNC is used */
    enum gather_deal deal;
    int nrecords, buffers;           /* 1 or 2 */
    size_t record_bytes, head_bytes; /* multiples of 8. Both 0: nothing is gathered */
};

/* All ranks must open alike while no operation is under way. Caller closes; the memory is the comm's. */
int gather_open(const struct gather_options *opt, struct gather **ret_gather, struct err *err);
/* NULL is ignored. */
void gather_close(struct gather *g);

/* Memory that this rank fills before the next gather_all(): a record of its own, its head. Contents undefined. */
void *gather_record(struct gather *g, int index);
void *gather_head(struct gather *g);
/* Makes all ranks' records and heads readable by all; over device memory it is queued. */
int gather_all(struct gather *g, struct err *err);

/* A record or head of any rank. */
const void *gather_read(const struct gather *g, int index);
const void *gather_read_head(const struct gather *g, int rank);
/* For records of doubles: rows[i] = the doubles of record i from `at` on, [nrecords] pointers. */
void gather_rows(const struct gather *g, size_t at, const double **ret_rows);
