/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/spool/spool.h - records on disk that
 * detd has not committed yet, in two preallocated segments, spool.0 and spool.1.
 *
 * Records are numbered without a gap (seq). The CRC32C of each record continues the CRC of the record before it. A
 * segment that is used again still holds old records with good CRCs; because of the chain neither an old record nor the
 * tail of a torn write can follow a new record. One segment is written. When it is full and detd has acked everything
 * in the other one, the two change places. A full spool refuses records; it never drops one.
 * Room is preallocated, so a full disk is found when the spool is made; a failed attempt leaves no files. A file system
 * that does not overwrite in place (btrfs, ZFS) may run out of room in mid-job all the same. Then the record is not
 * appended, and the caller may try again.
 *
 * Not thread-safe, except spool_sync(). Errors: -errno of the files, ERR_CORRUPT, ERR_INPUT for a record over the
 * limit. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct spool;

enum { SPOOL_SEGMENT_BYTES = 16 << 20, SPOOL_MAX_RECORD = 128 << 10, SPOOL_STORE_ID = 63 };

/* Opens or makes the segments in folder `dir` and cuts a torn tail. Everything up to last_seq is known to be committed;
 * numbering goes on after the larger of last_seq and the last record. segment_bytes is SPOOL_SEGMENT_BYTES, smaller in
 * tests. Caller closes. */
int spool_open(const char *dir, size_t segment_bytes, uint64_t last_seq, struct spool **ret, struct err *err);
void spool_close(struct spool *s);

/* The next number and record. -ENOSPC, -EDQUOT: the spool or the disk is full; nothing was appended. */
int spool_append(struct spool *s, const void *payload, size_t len, uint64_t *ret_seq, struct err *err);
/* Whether `bytes` of payload fit now, as one record or a few. */
bool spool_has_room(const struct spool *s, size_t bytes);
/* Every record appended before is on the disk when it returns 0. May run in another thread beside the other
 * functions. */
int spool_sync(struct spool *s, struct err *err);
/* Everything up to seq is committed elsewhere. Smaller numbers than before are ignored. */
void spool_ack(struct spool *s, uint64_t seq);
/* What was committed after seq is so no more. */
void spool_unack(struct spool *s, uint64_t seq);

uint64_t spool_first(const struct spool *s); /* the oldest that is still there, acked or not; spool_last() + 1: none is */
uint64_t spool_last(const struct spool *s);  /* 0: none ever */
uint64_t spool_acked(const struct spool *s);
/* Number of records lost between the segments because one was damaged; 0 where all is well. Found by spool_open(). */
uint64_t spool_lost(const struct spool *s);

/* The identity of the store that acks, kept in the segments; "" until it is set. */
const char *spool_store_id(const struct spool *s);
int spool_set_store_id(struct spool *s, const char *id, struct err *err);

/* Reading. A cursor stands before the first record with a number > after (0: the oldest that is still there, acked or
 * not). */
struct spool_cursor {
    uint64_t seq; /* of the next record */
    int segment;
    uint32_t crc;
    size_t offset;
};
int spool_seek(struct spool *s, uint64_t after, struct spool_cursor *ret, struct err *err);
/* The next record: 1 and its payload (NUL-terminated, borrowed until the next call), or 0 at the end. */
int spool_next(struct spool *s, struct spool_cursor *c, const char **ret_payload, size_t *ret_len, uint64_t *ret_seq, struct err *err);
