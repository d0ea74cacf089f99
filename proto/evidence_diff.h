/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence_diff.h - two runs compared by their evidence: the first step where they part, and in what. Where both start from the same, their chains
 * tell the step in a few reads; else each step's records are compared. */
#pragma once
#include <jansson.h>
#include <signal.h>

#include "proto/evidence.h"

enum { EVIDENCE_DIFF_TEXT = 512 };

struct evidence_diff_options {
    int64_t from;                      /* the first step to look at, 1 or more */
    int64_t begin;                     /* where steps before `from` were found equal: the `from` of what that found; else 0 */
    int64_t to, missing, lacking;      /* and its `to`, `missing` and `lacking`; else 0 */
    int64_t limit;                     /* of records compared one by one, 1 or more; then `next` says where to go on */
    const volatile sig_atomic_t *stop; /* NULL, or ends it early where it becomes other than 0 */
};

struct evidence_diff_side {
    int64_t steps;                 /* of which there may be records */
    struct evidence_record record; /* of the step that differs */
    bool kept;                     /* the detail of that step */
    bool lacks;                    /* the record of step `missing` */
    int rank;                      /* the one with the shard that differs; -1: no shard is known to */
};

struct evidence_diff {
    bool same_spec, same_data, same_level, same_shards, same_tensors; /* of the heads */
    int64_t from, to; /* the first and the last step of which both have records that were compared, `begin` .. included; 0: none */
    int64_t missing, missing_to; /* the first steps after `from` of which one has no record; 0: none that chains do not make up for */
    int64_t lacking;             /* how many such steps there are, these included */
    int64_t next;                /* 0, or nothing differs so far and the limit was reached: go on from this step */
    bool cut;                    /* both go on after `to`, and nothing there can be compared: equal is what was compared, not the runs */
    bool apart;                  /* though no record differs, their chains do: they parted before `from`, or where there is none */
    int64_t step;                /* the first that differs; 0: none */
    struct evidence_difference difference; /* of that step */
    struct evidence_diff_side side[2];
    char text[EVIDENCE_DIFF_TEXT]; /* all this as a sentence */
};

/* ERR_INPUT: no such step to look at, or to have begun at, and what cannot be `to`, `missing` or `lacking` of that; -EINTR: stopped; -ENOMEM. */
int evidence_diff(const struct evidence *a, const struct evidence *b, const struct evidence_diff_options *opt, struct evidence_diff *ret,
                  struct err *err);
/* New reference; h: the head of a. NULL: out of memory. */
json_t *evidence_diff_json(const struct evidence_head *h, const struct evidence_diff *d);
