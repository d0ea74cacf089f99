/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_form.h - the bytes of evidence: its head as JSON,
 * records and details as in the files. No I/O, so that fuzzers can feed it. Only evidence*.c use it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/evidence/evidence.h"

enum { EVIDENCE_HEAD_BYTES = 1 << 20 }; /* largest head that is written or read */
#define EVIDENCE_HEAD_FILE    "evidence.json"
#define EVIDENCE_LOG_FILE     "evidence.log"
#define EVIDENCE_RING_FILE    "evidence.ring"
#define EVIDENCE_TENSORS_FILE "evidence.tensors"

/* ERR_INPUT: the head has an impossible value; field and message name the member. */
int evidence_head_check(const struct evidence_head *h, struct err *err);
bool evidence_head_equal(const struct evidence_head *a, const struct evidence_head *b);
/* A copy, in one piece: free() frees it. NULL: out of memory. */
struct evidence_head *evidence_head_copy(const struct evidence_head *h);
/* The text of a checked head, ret_len bytes; caller frees. -ENOMEM; ERR_INPUT: it is too long. */
int evidence_head_text(const struct evidence_head *h, char **ret_text, size_t *ret_len, struct err *err);
/* ERR_INPUT: not the head of evidence; ERR_UNSUPPORTED: of another format; -ENOMEM. free() frees it. */
int evidence_head_parse(const char *text, size_t len, struct evidence_head **ret_head, struct err *err);

/* Size of a detail in bytes. */
size_t evidence_detail_bytes(const struct evidence_head *h);
/* The place of a step's detail in the ring, and among the kept details (-1: it is not kept). */
int64_t evidence_ring_at(const struct evidence_head *h, int64_t step);
int64_t evidence_kept_at(const struct evidence_head *h, int64_t step);

/* start: evidence_start() of the head. It goes into the check, so that the remains of another run are not taken for
 * this one's. */
void evidence_put_record(struct hash128 start, const struct evidence_record *r, unsigned char ret[EVIDENCE_RECORD_BYTES]);
/* Whether the bytes are a valid record of that step. */
bool evidence_get_record(struct hash128 start, const unsigned char bytes[EVIDENCE_RECORD_BYTES], int64_t step, struct evidence_record *ret);
/* ret has evidence_detail_bytes() bytes. */
void evidence_put_detail(const struct evidence_head *h, struct hash128 start, const struct evidence_detail *d, unsigned char *ret);
bool evidence_get_detail(const struct evidence_head *h, struct hash128 start, const unsigned char *bytes, int64_t step,
                         struct evidence_detail *ret);
