/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/words.h - gives the ranks of a program a word that all
 * of them see at one step. Pure: each access to memory is a step of its own, so that a test can go through all orders
 * of them.
 *
 * A rank publishes the step that it enters, then reads its order. The order is written to all pages first, for a step
 * after every published one, and not released. After a fence on all processors the published steps are read again. If
 * a rank has reached the step of the order, it may or may not have seen the order: nobody has obeyed it yet, since a
 * rank that sees an order that is not released waits. So the order is replaced by one of a later step. Otherwise every
 * rank will see it, and it is released. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/word.h"

enum words_phase { WORDS_CHECK, WORDS_ARM, WORDS_FENCE, WORDS_RELEASE, WORDS_GIVEN };

/* The pages of the ranks. */
struct words_memory {
    int64_t (*entered)(void *arg, int rank);
    void (*put)(void *arg, int rank, uint64_t order);
    /* Every processor orders its accesses: membarrier(2). */
    void (*fence)(void *arg);
    void *arg;
};

struct words {
    int nranks;
    uint64_t left_out; /* ranks that ask no more: bits */
    enum word word;
    enum words_phase phase;
    int at;         /* rank of the next access */
    int64_t newest; /* step that a rank has entered */
    unsigned serial;
    uint64_t order; /* as the ranks have it */
};

void words_begin(struct words *w, enum word word);
/* The next access. Returns false when the word is given. */
bool words_next(struct words *w, const struct words_memory *m);
