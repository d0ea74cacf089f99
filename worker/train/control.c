#include "worker/train/control.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdbool.h>
#include <string.h>

#include "proto/err.h"
#include "proto/tier.h"

enum tier tier_of(const char *name)
{
    int tier = tier_parse(name);

    return tier < 0 ? TIER_OFF : (enum tier)tier;
}

void control_init(struct control *c, struct report *report, int64_t log_every, int64_t last, enum tier tier)
{
    memset(c, 0, sizeof *c);
    c->report = report;
    c->log_every = log_every;
    c->last = last;
    control_tier(c, 1, tier);
}

void control_tier(struct control *c, int64_t from, enum tier tier)
{
    if (c->ntiers < (int)(sizeof c->tiers / sizeof *c->tiers))
        c->tiers[c->ntiers++] = (struct tier_change){ from, tier };
}

enum tier control_tier_at(const struct control *c, int64_t step)
{
    enum tier tier = TIER_OFF;

    for (int i = 0; i < c->ntiers; i++)
        if (c->tiers[i].from <= step || i == 0)
            tier = c->tiers[i].tier;
    return tier;
}

void control_pack(const struct control_word *word, uint64_t ret[CONTROL_WORDS])
{
    ret[0] = word->word;
    ret[1] = word->tier;
    ret[2] = word->step;
}

struct control_word control_unpack(const uint64_t packed[CONTROL_WORDS])
{
    return (struct control_word){ (enum report_word)packed[0], packed[1], packed[2] };
}

/* A tier changes at the end of a log window, so that every loss row has one tier. It is the first end at least two
 * steps ahead. If the job ends by then, the change is refused. */
static int propose(struct control *c, int64_t step, const char *name, struct err *err)
{
    int64_t every = c->log_every, end = (step + 2 + every - 1) / every * every;

    if (end >= c->last)
        return report_tier_refused(c->report, name, err,
                                   "tier %s is not applied: it could begin with step %lld at the earliest, and the job ends with step %lld",
                                   name, (long long)end + 1, (long long)c->last);
    c->proposal = (struct tier_change){ end + 1, tier_of(name) };
    return report_tier_propose(c->report, end + 1, name, err);
}

/* The change must travel with the losses of the step before it, at the latest. At that step the call waits for
 * detd-job's answer. */
static int proposal_word(struct control *c, int64_t step, struct control_word *ret, struct err *err)
{
    const char *name = tier_name(c->proposal.tier);
    bool ok = false;
    int rc;

    if (step >= c->proposal.from - 1) {
        rc = report_wait_tier(c->report, c->proposal.from, name, err);
        ok = rc >= 0;
    } else {
        rc = report_tier_ok(c->report, c->proposal.from, name, &ok, err);
    }
    if (rc >= 0 && ok) {
        *ret = (struct control_word){ WORD_TIER, c->proposal.tier, (uint64_t)c->proposal.from };
        c->proposal.from = 0;
    }
    return rc;
}

int control_poll(struct control *c, int64_t step, struct control_word *ret, struct err *err)
{
    struct report_control heard;
    int rc;

    *ret = (struct control_word){ WORD_NONE, 0, 0 };
    if (c->proposal.from > 0)
        return proposal_word(c, step, ret, err);
    if (c->order != WORD_NONE)
        return 0; /* one at a time */
    rc = report_control(c->report, &heard, err);
    if (rc < 0 || heard.word == WORD_NONE)
        return rc;
    if (heard.word == WORD_TIER && c->replays)
        return report_tier_refused(c->report, heard.tier, err,
                                   "tier %s is not taken: each step has the tier that it had in the run that is verified", heard.tier);
    if (heard.word == WORD_TIER)
        return propose(c, step, heard.tier, err);
    ret->word = heard.word;
    return 0;
}

void control_take(struct control *c, int64_t step, const struct control_word *word)
{
    if (word->word == WORD_TIER) {
        control_tier(c, (int64_t)word->step, (enum tier)word->tier);
    } else if (word->word != WORD_NONE) {
        c->order = word->word;
        c->after = step + 1;
    }
}

enum report_word control_due(struct control *c, int64_t step)
{
    enum report_word word = c->order;

    if (word == WORD_NONE || step < c->after)
        return WORD_NONE;
    c->order = WORD_NONE;
    return word;
}
