#include "supervisor/program/silence.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "proto/clean.h"
#include "supervisor/ranks/watch.h"

static uint64_t get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void silence_read(struct progress *page, struct silence_page *ret)
{
    uint64_t name[PROGRESS_NAME_WORDS + 1] = { 0 };
    char *raw = (char *)name;

    *ret = (struct silence_page){ 0 };
    if (atomic_load_explicit(&page->magic, memory_order_acquire) != PROGRESS_MAGIC ||
        atomic_load_explicit(&page->version, memory_order_relaxed) < PROGRESS_VERSION_PROGRAM)
        return;
    ret->changes = atomic_load_explicit(&page->changes, memory_order_acquire);
    ret->step = get(&page->step) & INT64_MAX;
    ret->deadline_ms = get(&page->phase_deadline_ms);
    for (int i = 0; i < PROGRESS_NAME_WORDS; i++)
        name[i] = get(&page->phase_name[i]);
    for (char *p = raw; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    clean_copy(ret->phase, sizeof ret->phase, raw);
}

void silence_begin(struct silence *s, int nranks, double silent_after_s)
{
    *s = (struct silence){ .nranks = nranks, .silent_after_s = silent_after_s, .looked_s = -1 };
}

/* Output counts only if the user asked for a limit: then a program that reports nothing is watched by it. */
static void take_page(const struct silence *s, struct silence_rank *r, const struct silence_page *p, double dt)
{
    const struct silence_page *q = &r->last;
    bool changed = p->changes != q->changes || p->held, spoke = changed || p->step != q->step || p->lines != q->lines;
    bool wrote = !isnan(s->silent_after_s) && p->output != q->output;

    r->still_s = changed || p->deadline_ms != q->deadline_ms ? 0 : r->still_s + dt;
    r->quiet_s = spoke || wrote ? 0 : r->quiet_s + dt;
    r->last = *p;
}

/* The limit of its silence; INFINITY: none. */
static double limit_of(const struct silence *s, const struct silence_rank *r)
{
    if (r->last.step == 0 && (isnan(s->silent_after_s) || r->last.lines > 0))
        return INFINITY;
    if (isnan(s->silent_after_s))
        return SILENCE_DEFAULT_S;
    return s->silent_after_s > 0 ? s->silent_after_s : INFINITY;
}

static bool is_overdue(const struct silence_rank *r)
{
    return r->last.deadline_ms > 0 && r->still_s * 1000 >= (double)r->last.deadline_ms;
}

static bool hangs(const struct silence *s, const struct silence_rank *r)
{
    return !r->last.gone && (is_overdue(r) || r->quiet_s >= limit_of(s, r));
}

static bool is_worse(const struct silence_rank *a, const struct silence_rank *b)
{
    return a->last.step != b->last.step ? a->last.step < b->last.step : a->quiet_s > b->quiet_s;
}

static void tell(const struct silence_rank *r, int rank, int others, struct watch_verdict *ret)
{
    const char *phase = r->last.phase;
    char more[60] = "";

    ret->rank = rank;
    ret->kind = "hang";
    ret->phase = PHASE_PROGRAM;
    ret->step = r->last.step;
    if (others > 0)
        snprintf(more, sizeof more, "; %d other rank%s silent, too", others, others == 1 ? " is" : "s are");
    if (is_overdue(r))
        snprintf(ret->text, sizeof ret->text,
                 "rank %d hangs in phase %s at step %llu: no progress for %.0f s, the deadline of this phase%s", rank,
                 phase[0] ? phase : "without a name", (unsigned long long)r->last.step, r->still_s, more);
    else
        snprintf(ret->text, sizeof ret->text, "rank %d hangs%s%s at step %llu: no report for %.0f s%s", rank, phase[0] ? " in phase " : "",
                 phase, (unsigned long long)r->last.step, r->quiet_s, more);
}

void silence_look(struct silence *s, const struct silence_page *pages, double now_s, struct watch_verdict *ret)
{
    double dt = s->looked_s < 0 ? 0 : now_s - s->looked_s;
    int worst = -1, n = 0;

    s->looked_s = now_s;
    memset(ret, 0, sizeof *ret);
    ret->rank = -1;
    for (int i = 0; i < s->nranks; i++) {
        take_page(s, &s->ranks[i], &pages[i], dt < WATCH_MAX_LOOK_S ? dt : WATCH_MAX_LOOK_S);
        if (!hangs(s, &s->ranks[i]))
            continue;
        n++;
        if (worst < 0 || is_worse(&s->ranks[i], &s->ranks[worst]))
            worst = i;
    }
    if (worst >= 0)
        tell(&s->ranks[worst], worst, n - 1, ret);
}
