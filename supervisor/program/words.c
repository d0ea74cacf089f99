#include "supervisor/program/words.h" /* SPDX-License-Identifier: Apache-2.0 */

void words_begin(struct words *w, enum word word)
{
    w->word = word;
    w->phase = WORDS_LOOK;
    w->at = 0;
    w->newest = 0;
}

static void write_order(struct words *w, bool released)
{
    int64_t step = w->newest < WORD_STEP_MAX ? w->newest + 1 : WORD_STEP_MAX;

    w->order = word_pack(w->word, released ? word_step(w->order) : step, released, w->serial);
}

static void enter(struct words *w, enum words_phase phase)
{
    w->phase = phase;
    w->at = 0;
    w->serial += phase == WORDS_ARM;
    if (phase == WORDS_ARM || phase == WORDS_RELEASE)
        write_order(w, phase == WORDS_RELEASE);
}

/* What follows when all ranks were accessed. */
static void finish(struct words *w)
{
    switch (w->phase) {
    case WORDS_LOOK:
        enter(w, WORDS_ARM);
        break;
    case WORDS_ARM:
        enter(w, WORDS_FENCE);
        break;
    case WORDS_CHECK:
        enter(w, w->newest >= word_step(w->order) ? WORDS_ARM : WORDS_RELEASE);
        break;
    default:
        enter(w, WORDS_GIVEN);
    }
}

static void look(struct words *w, const struct words_memory *m)
{
    int64_t step = m->entered(m->arg, w->at);

    w->newest = step > w->newest && step <= WORD_STEP_MAX ? step : w->newest;
}

bool words_next(struct words *w, const struct words_memory *m)
{
    while (w->at < w->nranks && w->left_out >> w->at & 1)
        w->at++;
    if (w->phase == WORDS_GIVEN)
        return false;
    if (w->phase == WORDS_FENCE) {
        m->fence(m->arg);
        enter(w, WORDS_CHECK);
        return true;
    }
    if (w->at < w->nranks && (w->phase == WORDS_LOOK || w->phase == WORDS_CHECK))
        look(w, m);
    else if (w->at < w->nranks)
        m->put(m->arg, w->at, w->order);
    if (++w->at >= w->nranks)
        finish(w);
    return w->phase != WORDS_GIVEN;
}
