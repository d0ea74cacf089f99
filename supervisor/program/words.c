#include "supervisor/program/words.h" /* SPDX-License-Identifier: Apache-2.0 */

void words_begin(struct words *w, enum word word)
{
    w->word = word;
    w->phase = WORDS_CHECK; /* of no order yet, which every rank has passed */
    w->order = 0;
    w->at = 0;
    w->newest = 0;
}

static void enter(struct words *w, enum words_phase phase)
{
    int64_t step = w->newest < WORD_STEP_MAX ? w->newest + 1 : WORD_STEP_MAX;

    w->phase = phase;
    w->at = 0;
    if (phase == WORDS_ARM)
        w->order = word_pack(w->word, step, false, ++w->serial);
    if (phase == WORDS_RELEASE)
        w->order = word_pack(w->word, word_step(w->order), true, w->serial);
}

/* What follows when all ranks were accessed. */
static void finish(struct words *w)
{
    if (w->phase == WORDS_CHECK)
        enter(w, w->newest >= word_step(w->order) ? WORDS_ARM : WORDS_RELEASE);
    else
        enter(w, w->phase == WORDS_ARM ? WORDS_FENCE : WORDS_GIVEN);
}

bool words_next(struct words *w, const struct words_memory *m)
{
    while (w->at < w->nranks && w->left_out >> w->at & 1)
        w->at++;
    if (w->phase == WORDS_FENCE) {
        m->fence(m->arg);
        enter(w, WORDS_CHECK);
    } else if (w->phase == WORDS_CHECK && w->at < w->nranks) {
        int64_t step = m->entered(m->arg, w->at++);

        w->newest = step > w->newest && step <= WORD_STEP_MAX ? step : w->newest;
    } else if (w->phase != WORDS_GIVEN && w->at < w->nranks) {
        m->put(m->arg, w->at++, w->order);
    } else if (w->phase != WORDS_GIVEN) {
        finish(w);
    }
    return w->phase != WORDS_GIVEN;
}
