#include "worker/train/due.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stddef.h>

#include "proto/job/jobspec.h"
#include "worker/optim/schedule.h"

struct due due_after(const struct jobspec *spec, int64_t step, int64_t last, bool validates, enum report_word word)
{
    struct due d = { .word = word, .ends = step == last };

    d.log = schedule_due(spec->train_log_every, step, spec->train_steps);
    d.counts = validates && schedule_due(spec->val_every, step, spec->train_steps);
    d.validate = d.counts || (validates && word == WORD_EVAL);
    d.save = d.ends || word == WORD_CHECKPOINT || word == WORD_PAUSE || schedule_due(spec->checkpoint_every, step, spec->train_steps);
    return d;
}

void due_validated(struct due *d, const struct jobspec *spec, bool stale, bool best)
{
    d->ends = d->ends || (d->counts && stale);
    d->save = d->save || d->ends || (best && spec->checkpoint_every > 0); /* or no checkpoint would hold the best */
}

bool due_is_any(const struct due *d)
{
    return d->log || d->validate || d->save || d->word != WORD_NONE;
}

const char *due_outcome(const struct due *d)
{
    return d->ends ? "completed" : d->word == WORD_PAUSE ? "paused" : d->word == WORD_CANCEL ? "cancelled" : NULL;
}
