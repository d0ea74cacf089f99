#include "supervisor/ranks/watch.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int deadline_s, waited_s;
} phases[] = {
#define X(ident, name, deadline, waited) [PHASE_##ident] = { deadline, waited },
    PROGRESS_PHASES(X)
#undef X
};

enum { COLLECTIVES_TEXT = 48 };

struct rank {
    struct watch_page last;
    double beat_s, stall_s; /* since the heartbeat, since the progress changed */
};

struct watch {
    int nranks;
    double looked_s; /* time of the last look, < 0: none */
    struct rank ranks[];
};

static struct watch_collective read_collective(struct progress *page, int channel)
{
    uint64_t word = atomic_load_explicit(&page->collective[channel], memory_order_relaxed);

    return (struct watch_collective){ (uint32_t)(word >> 32), (uint32_t)word };
}

void watch_read(struct progress *page, struct watch_page *ret)
{
    bool there = atomic_load_explicit(&page->magic, memory_order_acquire) == PROGRESS_MAGIC;
    uint32_t version = atomic_load_explicit(&page->version, memory_order_relaxed);

    *ret = (struct watch_page){
        .there = there && version >= PROGRESS_VERSION,
        .changes = atomic_load_explicit(&page->changes, memory_order_acquire),
        .heartbeat = atomic_load_explicit(&page->heartbeat, memory_order_relaxed),
        .step = atomic_load_explicit(&page->step, memory_order_relaxed),
        .done_in_phase = atomic_load_explicit(&page->done_in_phase, memory_order_relaxed),
        .images = atomic_load_explicit(&page->images, memory_order_relaxed),
        .phase = atomic_load_explicit(&page->phase, memory_order_relaxed),
    };
    for (int ch = 0; ch < CHANNEL_COUNT; ch++)
        ret->collective[ch] = read_collective(page, ch);
    if (ret->phase >= PHASE_COUNT) /* a rank's memory is not to be trusted */
        ret->phase = PHASE_STARTING;
}

struct watch *watch_new(int nranks)
{
    struct watch *w = calloc(1, sizeof *w + (size_t)nranks * sizeof *w->ranks);

    if (w) {
        w->nranks = nranks;
        w->looked_s = -1;
    }
    return w;
}

void watch_free(struct watch *w)
{
    free(w);
}

static void take_page(struct rank *r, const struct watch_page *p, double dt)
{
    const struct watch_page *q = &r->last;
    bool beat = p->heartbeat != q->heartbeat || p->there != q->there;
    bool moved =
        p->changes != q->changes || p->done_in_phase != q->done_in_phase || p->images != q->images || p->there != q->there || p->held;

    r->beat_s = beat ? 0 : r->beat_s + dt;
    r->stall_s = moved ? 0 : r->stall_s + dt;
    r->last = *p;
}

static bool is_judged(const struct rank *r)
{
    return r->last.there && !r->last.gone;
}

static bool is_waiting(const struct rank *r)
{
    return r->last.phase == PHASE_REDUCE || r->last.phase == PHASE_SYNC;
}

static int longest_silence(const struct watch *w)
{
    int worst = -1;

    for (int i = 0; i < w->nranks; i++)
        if (is_judged(&w->ranks[i]) && w->ranks[i].beat_s >= WATCH_HEARTBEAT_S &&
            (worst < 0 || w->ranks[i].beat_s > w->ranks[worst].beat_s))
            worst = i;
    return worst;
}

/* Whether a rank that waits in a collective has been at it longer than that wait may last. */
static int overdue_waiter(const struct watch *w)
{
    for (int i = 0; i < w->nranks; i++)
        if (is_judged(&w->ranks[i]) && is_waiting(&w->ranks[i]) && w->ranks[i].stall_s >= phases[w->ranks[i].last.phase].deadline_s)
            return i;
    return -1;
}

/* The rank that the waiting ones wait for: not in a collective and longest without progress. -1: all wait. */
static int waited_for(const struct watch *w)
{
    int worst = -1;

    for (int i = 0; i < w->nranks; i++) {
        const struct rank *r = &w->ranks[i];

        if (!r->last.gone && !(r->last.there && is_waiting(r)) && (worst < 0 || r->stall_s > w->ranks[worst].stall_s))
            worst = i;
    }
    return worst;
}

/* By step; then by what the main thread has entered, which decides what the thread of the gradients gets to do; then by
 * the gradients. */
static bool is_behind(const struct watch_page *p, const struct watch_page *q)
{
    const struct watch_collective *a = p->collective, *b = q->collective;

    if (p->step != q->step)
        return p->step < q->step;
    if (a[CHANNEL_SYNC].number != b[CHANNEL_SYNC].number)
        return a[CHANNEL_SYNC].number < b[CHANNEL_SYNC].number;
    return a[CHANNEL_GRAD].number < b[CHANNEL_GRAD].number;
}

/* All wait: the one that is behind holds the others up. */
static int hindmost(const struct watch *w)
{
    int last = -1;

    for (int i = 0; i < w->nranks; i++)
        if (is_judged(&w->ranks[i]) && (last < 0 || is_behind(&w->ranks[i].last, &w->ranks[last].last)))
            last = i;
    return last;
}

/* Two ranks at the same number of a channel that mean different collectives by it. */
static bool differ(const struct rank *a, const struct rank *b, int ch)
{
    const struct watch_collective *p = &a->last.collective[ch], *q = &b->last.collective[ch];

    if (!is_judged(a) || !is_judged(b) || a->stall_s == 0 || b->stall_s == 0)
        return false;
    return p->number == q->number && p->hash != q->hash;
}

static void tell_mismatch(const struct watch *w, int i, int k, int ch, struct watch_verdict *ret)
{
    const struct watch_page *p = &w->ranks[i].last, *q = &w->ranks[k].last;

    *ret = (struct watch_verdict){ .rank = k, .kind = "mismatch", .phase = q->phase, .step = q->step };
    snprintf(ret->text, sizeof ret->text,
             "ranks %d and %d are in different collectives: number %u of channel %s is %08x on rank %d (%s, step %llu) "
             "and %08x on rank %d (%s, step %llu)",
             i, k, p->collective[ch].number, progress_channel_name((enum progress_channel)ch), p->collective[ch].hash, i,
             progress_phase_name(p->phase), (unsigned long long)p->step, q->collective[ch].hash, k, progress_phase_name(q->phase),
             (unsigned long long)q->step);
}

static bool mismatch(const struct watch *w, struct watch_verdict *ret)
{
    for (int ch = 0; ch < CHANNEL_COUNT; ch++)
        for (int i = 0; i < w->nranks; i++)
            for (int k = i + 1; k < w->nranks; k++)
                if (differ(&w->ranks[i], &w->ranks[k], ch)) {
                    tell_mismatch(w, i, k, ch, ret);
                    return true;
                }
    return false;
}

static int stalled(const struct watch *w)
{
    int waiter = overdue_waiter(w), culprit;

    for (int i = 0; i < w->nranks; i++) {
        int deadline_s = phases[w->ranks[i].last.phase].deadline_s;

        if (is_judged(&w->ranks[i]) && !is_waiting(&w->ranks[i]) && deadline_s > 0 && w->ranks[i].stall_s >= deadline_s)
            return i;
    }
    if (waiter < 0)
        return -1;
    culprit = waited_for(w);
    if (culprit < 0)
        return hindmost(w);
    if (!w->ranks[culprit].last.there)
        return -1; /* a trainer without a page: it may be busy for all we know */
    int waited_s = phases[w->ranks[culprit].last.phase].waited_s;
    return waited_s > 0 && w->ranks[culprit].stall_s >= waited_s ? culprit : -1;
}

/* " (grad 7, sync 12)": the collectives that the rank has entered last; "" where it has entered none. */
static const char *tell_collectives(const struct watch_page *p, char *text, size_t size)
{
    size_t len = 0;

    text[0] = '\0';
    for (int ch = 0; ch < CHANNEL_COUNT; ch++)
        if (p->collective[ch].number > 0) {
            snprintf(text + len, size - len, "%s%s %u", len ? ", " : " (", progress_channel_name((enum progress_channel)ch),
                     p->collective[ch].number);
            len = strlen(text);
        }
    if (len > 0)
        snprintf(text + len, size - len, ")");
    return text;
}

/* "; rank 0 waits in reduce (grad 7, sync 12)" and so on; many ranks are counted, not listed. */
static void tell_others(const struct watch *w, int culprit, char *text, size_t size)
{
    char entered[COLLECTIVES_TEXT];
    int example = -1, n = 0;

    for (int i = 0; i < w->nranks; i++)
        if (i != culprit && is_judged(&w->ranks[i]) && is_waiting(&w->ranks[i])) {
            example = example < 0 ? i : example;
            n++;
        }
    text[0] = '\0';
    if (n == 0)
        return;
    tell_collectives(&w->ranks[example].last, entered, sizeof entered);
    if (n == 1)
        snprintf(text, size, "; rank %d waits in %s%s", example, progress_phase_name(w->ranks[example].last.phase), entered);
    else
        snprintf(text, size, "; %d ranks wait, rank %d in %s%s", n, example, progress_phase_name(w->ranks[example].last.phase), entered);
}

static void tell(const struct watch *w, int rank, bool silent, struct watch_verdict *ret)
{
    const struct rank *r = &w->ranks[rank];
    char others[120], entered[COLLECTIVES_TEXT];

    tell_others(w, rank, others, sizeof others);
    ret->rank = rank;
    ret->kind = "hang";
    ret->phase = r->last.phase;
    ret->step = r->last.step;
    snprintf(ret->text, sizeof ret->text, "rank %d hangs in phase %s at step %llu: %s for %.0f s%s%s", rank,
             progress_phase_name(r->last.phase), (unsigned long long)r->last.step, silent ? "no sign of life" : "no progress",
             silent ? r->beat_s : r->stall_s, tell_collectives(&r->last, entered, sizeof entered), others);
}

void watch_look(struct watch *w, const struct watch_page *pages, double now_s, struct watch_verdict *ret)
{
    double dt = w->looked_s < 0 ? 0 : now_s - w->looked_s;
    int silent, rank;

    w->looked_s = now_s;
    for (int i = 0; i < w->nranks; i++)
        take_page(&w->ranks[i], &pages[i], dt < WATCH_MAX_LOOK_S ? dt : WATCH_MAX_LOOK_S);
    memset(ret, 0, sizeof *ret);
    silent = longest_silence(w);
    ret->rank = -1;
    if (mismatch(w, ret))
        return;
    rank = silent >= 0 ? silent : stalled(w);
    if (rank >= 0)
        tell(w, rank, silent >= 0, ret);
}
