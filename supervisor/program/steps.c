#include "supervisor/program/steps.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

/* The oldest step that waits, or -1. *ret_full: too much waits. */
static int64_t find_oldest(const struct steps *s, bool *ret_full)
{
    int64_t step = -1;

    *ret_full = s->bytes > s->max_bytes;
    for (int i = 0; i < s->nranks; i++) {
        const struct steps_rank *r = &s->rank[i];

        if (r->first && (step < 0 || r->first->step < step))
            step = r->first->step;
        *ret_full = *ret_full || r->n > s->max_open;
    }
    return step;
}

/* A rank that lacks the step, or -1. *ret_never: it will not name it any more. */
static int find_lacking(const struct steps *s, int64_t step, bool *ret_never)
{
    int waits = -1;

    *ret_never = false;
    for (int i = 0; i < s->nranks; i++) {
        const struct steps_rank *r = &s->rank[i];

        if (r->first && r->first->step == step)
            continue;
        *ret_never = r->newest >= step;
        if (*ret_never)
            return i;
        waits = waits < 0 && !r->done ? i : waits;
    }
    return waits;
}

static void take_off(struct steps *s, int64_t step, struct steps_item **ret)
{
    for (int i = 0; i < s->nranks; i++) {
        struct steps_rank *r = &s->rank[i];

        ret[i] = r->first && r->first->step == step ? r->first : NULL;
        if (!ret[i])
            continue;
        r->first = r->first->next;
        r->n--;
        s->bytes -= ret[i]->bytes;
    }
}

static const char *tell(const struct steps_rank *r, bool never)
{
    if (!never)
        return "has not reported it, and too many wait";
    return r->failed ? "failed before it reported it" : "reports a later step and lacks this one";
}

static void settle(struct steps *s)
{
    struct steps_item *items[STEPS_RANKS];
    bool full, never;
    int64_t step;

    while ((step = find_oldest(s, &full)) >= 0) {
        int lacking = find_lacking(s, step, &never);

        if (lacking >= 0 && !never && !full)
            return;
        take_off(s, step, items);
        if (lacking < 0)
            s->complete(s->arg, step, items);
        else
            s->given_up(s->arg, step, lacking, tell(&s->rank[lacking], never));
        for (int i = 0; i < s->nranks; i++)
            free(items[i]);
    }
}

bool steps_add(struct steps *s, int rank, struct steps_item *item)
{
    struct steps_rank *r = &s->rank[rank];

    if (r->done || item->step <= r->newest)
        return false;
    r->interval = item->step - r->newest;
    r->newest = item->step;
    item->next = NULL;
    *(r->first ? &r->last->next : &r->first) = item;
    r->last = item;
    r->n++;
    s->bytes += item->bytes;
    settle(s);
    return true;
}

void steps_done(struct steps *s, int rank)
{
    s->rank[rank].done = true;
    settle(s);
}

void steps_failed(struct steps *s, int rank)
{
    struct steps_rank *r = &s->rank[rank];

    r->failed = true;
    for (int i = 0; i < s->nranks; i++)
        r->newest = s->rank[i].newest > r->newest ? s->rank[i].newest : r->newest;
    settle(s);
}

void steps_close(struct steps *s)
{
    for (int i = 0; i < s->nranks; i++)
        for (struct steps_item *item = s->rank[i].first, *next; item; item = next) {
            next = item->next;
            free(item);
        }
}
