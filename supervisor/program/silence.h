/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/program/silence.h - decides whether a rank of a program hangs,
 * and which. Pure: pages and the clock are arguments.
 *
 * A program may hold its threads for long, so a heartbeat says nothing. There are two rules. A rank that has reported a
 * step, and then neither reports nor changes its page for program.silent_after, hangs; so does a rank that has never
 * spoken, if the user asked for a limit, and it writes no output for so long. A rank in a phase with a deadline
 * (run.phase) hangs when its page stands still for that long. If several ranks hang, the one with the lowest step is
 * named, and of equal ones the one that is silent for the longest time. Silence is counted in looks of at most 2 s
 * each, so that nobody is blamed when detd-job itself was stopped. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/job/jobspec.h"
#include "proto/progress.h"

struct watch_verdict;

enum { SILENCE_NAME = 8 * (PROGRESS_NAME_WORDS + 1), SILENCE_DEFAULT_S = 1800 };

/* What one look at a rank shows. */
struct silence_page {
    bool gone;                /* it has ended, or said `finish`: not judged any more */
    bool held;                /* its lines are not read just now */
    uint64_t changes, step;   /* of its page; step also from its reports */
    uint64_t lines;           /* that it has written so far */
    uint64_t output;          /* bytes of its log */
    uint64_t deadline_ms;     /* of its phase; 0: none */
    char phase[SILENCE_NAME]; /* "": none */
};

struct silence {
    int nranks;
    double silent_after_s, looked_s; /* looked_s < 0: no look yet */
    struct silence_rank {
        struct silence_page last;
        double quiet_s; /* since it reported, or wrote output if that counts */
        double still_s; /* since its page changed */
    } ranks[JOB_MAX_RANKS];
};

/* Copies changes, step, deadline and phase out of shared memory; zeros as long as the rank has not written the page.
 * The memory is the program's, so the phase may hold any bytes. */
void silence_read(struct progress *page, struct silence_page *ret);
/* silent_after_s: as program.silent_after; NAN: the default. */
void silence_begin(struct silence *s, int nranks, double silent_after_s);
/* One look at all ranks, now_s on a clock that only goes forward. */
void silence_look(struct silence *s, const struct silence_page *pages, double now_s, struct watch_verdict *ret);
