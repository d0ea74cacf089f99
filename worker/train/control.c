/* worker/train/control.c - commands: only rank 0 hears them; they travel with the losses, so that all ranks act after the same step. */
#include <string.h>

#include "proto/err.h"
#include "worker/train/trainer_impl.h"

static const char *const tier_names[] = { "off", "rerun", "world" };

const char *tier_name(enum tier tier)
{
    return tier_names[tier];
}

enum tier tier_of(const char *name)
{
    for (int i = TIER_OFF; name && i <= TIER_WORLD; i++)
        if (strcmp(name, tier_names[i]) == 0)
            return (enum tier)i;
    return TIER_OFF;
}

enum tier tier_at(const struct trainer *t, int64_t step)
{
    enum tier tier = TIER_OFF;

    for (int i = 0; i < t->ntiers; i++)
        if (t->tiers[i].from <= step || i == 0)
            tier = t->tiers[i].tier;
    return tier;
}

/* A tier changes where a log window ends, so that every loss row has one tier: the first such end at least two steps ahead. */
static int propose(struct trainer *t, const char *name, struct err *err)
{
    int64_t every = t->spec->train_log_every, end = (t->step + 1 + 2 + every - 1) / every * every;

    t->proposal = (struct tier_change){ end + 1, tier_of(name) };
    return report_tier_propose(t->report, end + 1, name, err);
}

/* The losses of the step before the change are the last that can carry it: wait for detd-job's word before them. */
static int proposal_word(struct trainer *t, struct control_word *ret, struct err *err)
{
    const char *name = tier_name(t->proposal.tier);
    bool ok = false;
    int rc;

    if (t->step + 1 >= t->proposal.from - 1) {
        rc = report_wait_tier(t->report, t->proposal.from, name, err);
        ok = rc >= 0;
    } else {
        rc = report_tier_ok(t->report, t->proposal.from, name, &ok, err);
    }
    if (rc >= 0 && ok) {
        *ret = (struct control_word){ WORD_TIER, t->proposal.tier, (uint64_t)t->proposal.from };
        t->proposal.from = 0;
    }
    return rc;
}

int control_poll(struct trainer *t, struct control_word *ret, struct err *err)
{
    struct report_control c;
    int rc;

    *ret = (struct control_word){ WORD_NONE, 0, 0 };
    if (t->proposal.from > 0)
        return proposal_word(t, ret, err);
    if (t->order.word != WORD_NONE)
        return 0; /* one at a time */
    rc = report_control(t->report, &c, err);
    if (rc < 0 || c.word == WORD_NONE)
        return rc;
    if (c.word == WORD_TIER)
        return propose(t, c.tier, err);
    ret->word = c.word;
    return 0;
}

void control_take(struct trainer *t, const struct control_word *word)
{
    if (word->word == WORD_TIER && t->ntiers < (int)(sizeof t->tiers / sizeof *t->tiers))
        t->tiers[t->ntiers++] = (struct tier_change){ (int64_t)word->step, (enum tier)word->tier };
    else if (word->word != WORD_NONE && word->word != WORD_TIER)
        t->order = (struct order){ (enum report_word)word->word, t->step + 2 };
}

enum report_word control_due(struct trainer *t)
{
    enum report_word word = t->order.word;

    if (word == WORD_NONE || t->step < t->order.after)
        return WORD_NONE;
    t->order.word = WORD_NONE;
    return word;
}
