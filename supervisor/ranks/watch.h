/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/ranks/watch.h - decides from the progress pages whether a rank
 * hangs, and which. Pure: pages and the clock are arguments.
 *
 * Three rules. A heartbeat that stands still for 20 s is a verdict in any phase (the process is stopped, or starved). A
 * rank whose page shows no progress for its phase's deadline is a verdict too; where other ranks wait for it in a
 * collective, the shorter waited_s holds. Ranks that have entered different collectives under the same number of a
 * channel will never get on: that is a verdict (`mismatch`) as soon as they have not moved for a look, in which they
 * may find it out themselves. run.on_hang holds for it as well. Silence is counted in looks of at most 2 s each: when
 * detd-job itself was stopped, or the machine slept, nobody is blamed for it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/progress.h"

struct watch;

enum { WATCH_HEARTBEAT_S = 20, WATCH_MAX_LOOK_S = 2, WATCH_TEXT = 400 };

/* What one look at a page shows. */
struct watch_page {
    bool there; /* the rank has written its page at all */
    bool gone;  /* the process has ended or said its `end`: not judged any more */
    bool held;  /* what it says is not read just now, so that it may wait for that: no want of progress is its own */
    uint64_t heartbeat, changes, step, done_in_phase, images;
    uint32_t phase;
    struct watch_collective {
        uint32_t number, hash;
    } collective[CHANNEL_COUNT];
};

struct watch_verdict {
    int rank;         /* -1: nobody hangs */
    const char *kind; /* "hang" or "mismatch", static */
    uint32_t phase;
    uint64_t step;
    char text[WATCH_TEXT]; /* one sentence: names rank, phase, step, how long, and what the others do; or two ranks and their collectives */
};

/* Copies what the verdict needs out of shared memory. */
void watch_read(struct progress *page, struct watch_page *ret);

/* nranks pages, all silent for 0 s. Caller frees; NULL: out of memory. */
struct watch *watch_new(int nranks);
void watch_free(struct watch *w);
/* One look at all pages, now_s on a clock that only goes forward. Looks should come once a second. */
void watch_look(struct watch *w, const struct watch_page *pages, double now_s, struct watch_verdict *ret);
