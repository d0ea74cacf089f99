/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_diff.h - compares two runs by their evidence: finds
 * the first step in which they differ, and the part that differs. If both start from the same head, their chains tell
 * the step in a few reads; otherwise each step's records are compared. */
#pragma once
#include <jansson.h>
#include <signal.h>

#include "proto/evidence/evidence.h"

enum { EVIDENCE_DIFF_TEXT = 512 };

struct evidence_diff_side {
    int64_t steps;                 /* number of steps that may have records */
    struct evidence_record record; /* of the step that differs */
    bool kept;                     /* the detail of that step is there */
    bool lacks;                    /* the record of step `missing` is not there */
    int rank;                      /* the rank with the shard that differs; -1: that shard is not known */
};

struct evidence_diff {
    bool same_spec, same_data, same_level, same_shards, same_tensors; /* of the heads */
    int64_t from, to;            /* first and last compared step; both runs have their records; 0: there is no such step */
    int64_t missing, missing_to; /* the first gap after `from`, in which a record is missing; 0: no gap, or chains make up for it */
    int64_t lacking;             /* number of all steps with missing records, this gap included */
    bool cut;                    /* both go on after `to`, but nothing there can be compared: only the compared steps are equal */
    bool apart;                  /* no record differs but the chains do: the runs differed before `from`, or in a step without record */
    int64_t step;                /* the first step that differs; 0: all are equal */
    struct evidence_difference difference; /* of that step */
    struct evidence_diff_side side[2];
    char text[EVIDENCE_DIFF_TEXT]; /* all this as a sentence */
};

/* Compares from step `from` on, 1 .. EVIDENCE_MAX_STEPS. stop: NULL, or a flag that ends the comparison when it is not
 * 0. -EINTR: stopped; -ENOMEM. */
int evidence_diff(const struct evidence *a, const struct evidence *b, int64_t from, const volatile sig_atomic_t *stop,
                  struct evidence_diff *ret, struct err *err);
/* Returns a new reference; h: the head of a. NULL: out of memory. */
json_t *evidence_diff_json(const struct evidence_head *h, const struct evidence_diff *d);
