/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/rows.h - adds the shares of the ranks of a program, and
 * gives a row when all ranks have reported it. Pure: no clock, no file.
 *
 * Each rank reports the steps of a split in rising order. A row is complete when every rank has reported it or is done
 * (it then counts 0/0). The shares are added in the order of the ranks, in double precision. A row is given up when a
 * rank that lacks it reports a later step or fails, or when too many rows are open. Nothing here waits. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rows;

enum { ROWS_OPEN = 1024 /* of each split */, ROWS_TERMS = 256, ROWS_NAME = 64, ROWS_NAMES = 1024, ROWS_BYTES = 64 << 20, ROWS_TOLD = 20 };

struct rows_term {
    const char *name; /* 1 to 63 bytes */
    double num, den;  /* NAN: not finite */
};

struct rows_share {
    int rank;
    bool val; /* the split: val, else train */
    int64_t step;
    double epoch, images; /* NAN: not given */
    int n;
    const struct rows_term *terms;
};

struct rows_row {
    bool val;
    int64_t step;
    double epoch, images; /* NAN: not given by any rank */
    int n;
    const struct rows_term *terms; /* sums; the first is not always `total`, but `total` is among them */
};

struct rows_hooks {
    /* A row that is complete. Borrowed. */
    void (*row)(void *arg, const struct rows_row *row);
    /* Something that the user should know. The text names rank, term and step. Few of each kind. */
    void (*event)(void *arg, const char *kind, const char *text);
    void *arg;
};

/* resume_step: shares up to it are dropped. Caller frees; NULL: out of memory. */
struct rows *rows_new(int nranks, int64_t resume_step, const struct rows_hooks *hooks);
void rows_free(struct rows *r);
/* Copies what it needs of the share. Returns false if memory ran out: the share is lost. */
bool rows_take(struct rows *r, const struct rows_share *share);
/* The rank has said `finish` or left with status 0: it counts 0/0 from now on. */
void rows_done(struct rows *r, int rank);
/* The rank has left in another way. */
void rows_failed(struct rows *r, int rank);
/* The attempt is over: tells how many rows were given up in all, if that is more than was told. */
void rows_end(struct rows *r);
/* Newest step that a rank has reported in the training split, or -1. */
int64_t rows_step(const struct rows *r, int rank);
