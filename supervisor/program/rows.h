/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/rows.h - adds the shares of the ranks of a program, and
 * gives a row when all ranks have reported it (steps.h). Pure: no clock, no file.
 *
 * A rank that is done counts 0/0. The shares are added in the order of the ranks, in double precision. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct rows;

/* OPEN and BYTES: of each split */
enum { ROWS_OPEN = 1024, ROWS_BYTES = 32 << 20, ROWS_TERMS = 256, ROWS_NAME = 64, ROWS_NAMES = 1024, ROWS_TOLD = 20 };

struct rows_row {
    bool val; /* the split: val, else train */
    int64_t step;
    double epoch, images; /* NAN: not given by any rank */
    int n;
    const struct rows_term {
        const char *name; /* 1 to 63 bytes */
        double num, den;
    } * terms; /* sums; `total` is among them */
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
/* The message `share`, as record_parse_program() has checked it. Returns 0, -ENOMEM if the share is lost, or how many
 * of its terms were left out: their names have control characters, quotes or backslashes (escaped in a record they
 * could be longer than detd takes), or there are more than ROWS_TERMS. */
int rows_take(struct rows *r, int rank, const json_t *share);
/* The rank has said `finish`: it counts 0/0 from now on. */
void rows_done(struct rows *r, int rank);
/* The rank has left with status 0. Without `finish` before, the first row without it is told. */
void rows_left(struct rows *r, int rank);
/* The rank has left in another way. */
void rows_failed(struct rows *r, int rank);
/* The attempt is over: tells how many rows were given up in all, if that is more than was told. */
void rows_end(struct rows *r);
/* Newest step that a rank has reported in the training split, or 0. */
int64_t rows_step(const struct rows *r, int rank);
