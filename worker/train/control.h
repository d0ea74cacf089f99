/* SPDX-License-Identifier: Apache-2.0 */ /* worker/train/control.h - commands on their way through the steps. Only rank
 * 0 receives them; they travel with the losses, so that all ranks act after the same step. Also tells the tier of a
 * step. */
#pragma once
#include <stdint.h>

#include "worker/core/device.h"
#include "worker/report/report.h"

/* Rank 0's message with the losses of a step: an order acts after the following step, on all ranks. */
struct control_word {
    enum report_word word; /* WORD_NONE: nothing */
    uint64_t tier, step;   /* of WORD_TIER */
};

enum { CONTROL_WORDS = 3 }; /* uint64_t: a control_word between ranks */

struct tier_change {
    int64_t from; /* first step of the tier */
    enum tier tier;
};

struct control {
    struct report *report;
    int64_t log_every, last; /* step of the job */
    enum report_word order;  /* on its way; WORD_NONE: no order */
    int64_t after;           /* the step that it acts after */
    struct tier_change tiers[REPORT_MAX_TIERS + 1];
    int ntiers;
    bool replays;                /* tiers are those of the run being verified, and cannot be changed */
    struct tier_change proposal; /* rank 0: from > 0 while a change is being agreed */
};

/* report is borrowed. A log window ends every log_every steps, the job with step `last`. tier: of the first step. */
void control_init(struct control *c, struct report *report, int64_t log_every, int64_t last, enum tier tier);
/* An agreed tier, for the steps from `from` on; `from` must not be smaller than any before. */
void control_tier(struct control *c, int64_t from, enum tier tier);

/* Rank 0, before the losses of `step` are sent: reads commands and agrees on tiers. *ret is the word to send with
 * them. */
int control_poll(struct control *c, int64_t step, struct control_word *ret, struct err *err);
/* All ranks: notes the word that came with the losses of `step`. */
void control_take(struct control *c, int64_t step, const struct control_word *word);
/* The action due now that `step` is complete; mostly WORD_NONE. */
enum report_word control_due(struct control *c, int64_t step);

void control_pack(const struct control_word *word, uint64_t ret[CONTROL_WORDS]);
struct control_word control_unpack(const uint64_t packed[CONTROL_WORDS]);

/* Tier of a step. */
enum tier control_tier_at(const struct control *c, int64_t step);
/* TIER_OFF also for an unknown name, or NULL. */
enum tier tier_of(const char *name);
