/* SPDX-License-Identifier: Apache-2.0 */ /* proto/evidence/evidence_diff.h - two runs compared by their evidence: the first step where they part, and in what. Where both start from the same, their chains
 * tell the step in a few reads; else each step's records are compared. */
#pragma once
#include <jansson.h>
#include <signal.h>

#include "proto/evidence/evidence.h"

enum { EVIDENCE_DIFF_TEXT = 512 };

struct evidence_diff_side {
    int64_t steps;                 /* of which there may be records */
    struct evidence_record record; /* of the step that differs */
    bool kept;                     /* the detail of that step */
    bool lacks;                    /* the record of step `missing` */
    int rank;                      /* the one with the shard that differs; -1: no shard is known to */
};

struct evidence_diff {
    bool same_spec, same_data, same_level, same_shards, same_tensors; /* of the heads */
    int64_t from, to; /* the first and the last step of which both have records that were compared; 0: none */
    int64_t missing, missing_to; /* the first steps after `from` of which one has no record; 0: none that chains do not make up for */
    int64_t lacking;             /* how many such steps there are, these included */
    bool cut;                    /* both go on after `to`, and nothing there can be compared: equal is what was compared, not the runs */
    bool apart;                  /* though no record differs, their chains do: they parted before `from`, or where there is none */
    int64_t step;                /* the first that differs; 0: none */
    struct evidence_difference difference; /* of that step */
    struct evidence_diff_side side[2];
    char text[EVIDENCE_DIFF_TEXT]; /* all this as a sentence */
};

/* From step `from` on, 1 .. EVIDENCE_MAX_STEPS. stop: NULL, or ends it where it becomes other than 0. -EINTR: stopped; -ENOMEM. */
int evidence_diff(const struct evidence *a, const struct evidence *b, int64_t from, const volatile sig_atomic_t *stop,
                  struct evidence_diff *ret, struct err *err);
/* New reference; h: the head of a. NULL: out of memory. */
json_t *evidence_diff_json(const struct evidence_head *h, const struct evidence_diff *d);
