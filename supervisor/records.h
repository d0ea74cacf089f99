/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/records.h - records on their way into the spool. On a file
 * system that needs room to overwrite, a full disk may keep them out: they wait in memory. They are few, since ranks
 * are not read meanwhile, and nothing that they have to come before goes on. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/line.h"
#include "supervisor/spool/spool.h"

struct err;
struct going;
struct late;
struct link;

struct records {
    struct spool *spool;
    struct link *link;         /* NULL: not open yet */
    const struct going *going; /* has the number of the attempt */
    /* The spool cannot be written. Records that follow may be lost. */
    void (*fatal)(void *arg, const struct err *err);
    void *arg;
    bool told;         /* an attempt was recorded by this process */
    struct late *late; /* records that wait for room on the disk, the oldest first; NULL: none */
    size_t late_bytes;
    char no_room[200]; /* why they wait, for the status; "": none waits */
    struct line line;  /* being built in text */
    char text[SPOOL_MAX_RECORD];
};

/* Begins a record. The caller adds its members and calls records_add(). Valid until the next call of any function
 * here. */
struct line *records_begin(struct records *r, const char *type);
/* Appends the begun record and sends it when that is possible. *ret_seq, unless NULL, is set once the record is
 * written: it must live as long as *r. */
void records_add(struct records *r, uint64_t *ret_seq);
/* Appends a record as a rank wrote it. */
void records_add_text(struct records *r, const char *text, size_t len);
/* Adds the record of an attempt that begins. device: "cuda" or "cpu". */
void records_attempt(struct records *r, int nranks, int64_t resume_step, const char *device);
/* rank -1: the event is about the whole job. tier: that the event refuses, or NULL. */
void records_event(struct records *r, int rank, const char *level, const char *kind, const char *text, const char *tier);
/* Logs a warning, and adds it as an event. */
void records_warn(struct records *r, int rank, const char *kind, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Tries the waiting records again. Returns true if records waited and all are written now. */
bool records_write_late(struct records *r);
void records_drop_late(struct records *r);
