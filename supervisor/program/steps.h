/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/steps.h - brings together what the ranks of a program
 * say of the same step. Pure.
 *
 * Each rank names rising steps. A step is complete when every rank has named it or is done. It is given up when a rank
 * that lacks it names a later step or fails, or when too much waits. The oldest step that is open is settled first.
 * Nothing here waits. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEPS_RANKS = 64 };

/* The report of a rank for a step. It must be the first member of the caller's struct, which malloc() has made. */
struct steps_item {
    struct steps_item *next;
    int64_t step;
    size_t bytes; /* of the whole struct */
};

struct steps {
    int nranks;
    int max_open;     /* steps of a rank that may wait */
    size_t max_bytes; /* of all that waits */
    /* items: of each rank; NULL: it is done. Borrowed. */
    void (*complete)(void *arg, int64_t step, struct steps_item *const *items);
    /* rank: a rank that has not reported the step. why: the end of a sentence about that rank. */
    void (*given_up)(void *arg, int64_t step, int rank, const char *why);
    void *arg;
    size_t bytes;
    struct steps_rank {
        struct steps_item *first, *last; /* that wait */
        int n;
        int64_t newest, interval; /* the newest step that it has named, 0: none; and how far that was from the one before */
        bool done, failed;
    } rank[STEPS_RANKS];
};

/* Takes the item. Returns false if it is not of a later step than the rank's newest: then nothing is taken. */
bool steps_add(struct steps *s, int rank, struct steps_item *item);
/* The rank names no more steps: it counts as if it had named each later one. */
void steps_done(struct steps *s, int rank);
/* The rank has failed: the steps that wait for it are given up. */
void steps_failed(struct steps *s, int rank);
/* Frees the items that wait. */
void steps_close(struct steps *s);
