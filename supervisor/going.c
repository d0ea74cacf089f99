#include "supervisor/going.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

/* within_ms. BACKOFF: 1, 2, 4 ... GOING_BACKOFF_MAX_S seconds, by the number of tries. GRACE: going.term_ms. */
enum { BACKOFF = -2, GRACE = -3 };

struct cell {
    bool means; /* something in this phase */
    enum going_phase next;
    enum going_action action;
    int within_ms; /* as going.wait_ms, or BACKOFF, or GRACE */
};

#define TO(next, action, within)                   \
    {                                              \
        true, GOING_##next, GOING_##action, within \
    }
#define AT(phase, fact)       [GOING_##phase][GOING_FACT_##fact]
#define WISHES(first, last)   [GOING_##first... GOING_##last][GOING_FACT_CANCEL... GOING_FACT_LIMIT]
#define IN(first, last, fact) [GOING_##first... GOING_##last][GOING_FACT_##fact]

/* clang-format off */
static const struct cell table[GOING_PHASE_COUNT][GOING_FACT_COUNT] = {
    AT(NEW, RECORDED)             = TO(ENDED, AWAIT, GOING_END_ACK_MS),
    AT(NEW, CONCLUDED)            = TO(ENDING, END, 0),
    AT(NEW, BEGUN)                = TO(READING, READ, 0),

    AT(READING, READ)             = TO(LOCKING, LOCK, 0),
    AT(READING, REFUSED)          = TO(READING, TELL_REFUSED, BACKOFF),
    AT(READING, DUE)              = TO(READING, READ, 0),

    AT(LOCKING, LOCKED)           = TO(LAUNCHING, START, 0),
    AT(LOCKING, REFUSED)          = TO(LOCKING, TELL_REFUSED, BACKOFF),
    AT(LOCKING, DUE)              = TO(LOCKING, LOCK, 0),

    AT(WAITING, DUE)              = TO(LAUNCHING, START, 0),
    AT(WAITING, HELD)             = TO(WAITING, NOTHING, GOING_LATE_MS),

    IN(READING, LOCKING, CONCLUDED) = TO(ENDING, END, 0),
    WISHES(READING, WAITING)      = TO(ENDING, END_STOPPED, 0),

    AT(LAUNCHING, STARTED)        = TO(GREETING, NOTHING, GOING_HELLO_MS),
    AT(LAUNCHING, REFUSED)        = TO(WAITING, TELL_REFUSED, BACKOFF),
    AT(LAUNCHING, AGAIN)          = TO(WAITING, NOTHING, BACKOFF),
    AT(LAUNCHING, CONCLUDED)      = TO(ENDING, END, 0),

    AT(GREETING, GREETED)         = TO(RUNNING, GO, 0),
    AT(GREETING, DUE)             = TO(KILLED, TELL_UNHEARD, GOING_STAYS_MS),
    AT(GREETING, HELD)            = TO(GREETING, NOTHING, GOING_HELLO_MS), /* the reports that wait may hold the hello */
    WISHES(LAUNCHING, GREETING)   = TO(KILLED, KILL, GOING_STAYS_MS), /* such ranks have nothing to save */

    WISHES(RUNNING, RUNNING)      = TO(RUNNING, PASS, 0),
    AT(RUNNING, DISOBEYED)        = TO(STOPPING, TERM, GRACE),

    IN(GREETING, RUNNING, BROKEN) = TO(KILLED, KILL, GOING_STAYS_MS),
    IN(GREETING, RUNNING, HUNG)   = TO(KILLED, KILL, GOING_STAYS_MS),
    AT(RUNNING, TRACED)           = TO(STOPPING, NOTHING, GOING_DUMP_MS),
    IN(GREETING, RUNNING, FAILED) = TO(STOPPING, NOTHING, GOING_OTHERS_MS),
    IN(GREETING, RUNNING, DONE)   = TO(STOPPING, NOTHING, GOING_LEAVE_MS),

    AT(STOPPING, DUE)             = TO(KILLED, KILL, GOING_STAYS_MS),
    AT(STOPPING, DISOBEYED)       = TO(STOPPING, TERM, GOING_KEEP),

    AT(KILLED, DUE)               = TO(KILLED, TELL_STUCK, GOING_STAYS_MS),

    IN(GREETING, KILLED, GONE)    = TO(CLEANING, CLEAN, 0),

    AT(CLEANING, REMAIN)          = TO(CLEANING, NOTHING, GOING_LEFT_MS),
    AT(CLEANING, DUE)             = TO(CLEANING, CLEAN, 0),
    AT(CLEANING, AGAIN)           = TO(WAITING, NOTHING, BACKOFF),
    AT(CLEANING, CONCLUDED)       = TO(ENDING, END, 0),

    AT(ENDING, WRITTEN)           = TO(ENDED, CONFIRM, GOING_END_ACK_MS),
    AT(ENDED, ACKED)              = TO(OVER, QUIT, 0),
    AT(ENDED, DUE)                = TO(OVER, TELL_UNACKED, 0),
    IN(ENDING, ENDED, LEAVE)      = TO(OVER, QUIT, 0),

    IN(NEW, ENDED, FATAL)         = TO(OVER, DIE, 0),
};
/* clang-format on */

static int backoff_ms(int tries)
{
    int s = tries > 5 ? GOING_BACKOFF_MAX_S : 1 << (tries > 0 ? tries - 1 : 0);

    return 1000 * (s > GOING_BACKOFF_MAX_S ? GOING_BACKOFF_MAX_S : s);
}

static int grace_ms(const struct going *g)
{
    return g->term_ms > 0 ? g->term_ms : GOING_TERM_MS;
}

static unsigned wish_of(enum going_fact fact)
{
    static const unsigned wishes[GOING_FACT_COUNT] = { [GOING_FACT_CANCEL] = GOING_WISH_CANCEL,
                                                       [GOING_FACT_PAUSE] = GOING_WISH_PAUSE,
                                                       [GOING_FACT_LEAVE] = GOING_WISH_LEAVE,
                                                       [GOING_FACT_LIMIT] = GOING_WISH_LIMIT };

    return wishes[fact];
}

/* Returns the number of tries that the pause before the next one depends on. */
static int count(struct going *g, enum going_fact fact)
{
    switch (fact) {
    case GOING_FACT_REFUSED:
        return ++g->refusals;
    case GOING_FACT_STARTED:
        g->refusals = g->looks = 0;
        break;
    case GOING_FACT_HUNG:
    case GOING_FACT_TRACED:
        g->hung = true;
        break;
    case GOING_FACT_DUE:
        g->hung = g->hung || g->phase == GOING_GREETING;
        g->looks += g->phase == GOING_KILLED;
        break;
    case GOING_FACT_GONE:
        g->looks = 0;
        break;
    case GOING_FACT_REMAIN:
        g->looks++;
        break;
    case GOING_FACT_AGAIN:
        g->attempt++;
        return g->waits_for_file ? g->missing : g->failures;
    default:
        break;
    }
    return 0;
}

enum going_action going_next(struct going *g, enum going_fact fact)
{
    const struct cell *c = &table[g->phase][fact];
    int tries;

    g->wishes |= wish_of(fact);
    g->wait_ms = GOING_KEEP;
    if (!c->means)
        return GOING_NOTHING;
    tries = count(g, fact);
    g->wait_ms = c->within_ms == BACKOFF ? backoff_ms(tries) : c->within_ms == GRACE ? grace_ms(g) : c->within_ms;
    g->hung = g->hung && c->action != GOING_START;
    g->phase = c->next;
    return c->action;
}

bool going_has_attempt(const struct going *g)
{
    return g->phase == GOING_LAUNCHING || g->phase == GOING_GREETING || g->phase == GOING_RUNNING;
}

void going_saved(struct going *g, int64_t step)
{
    if (step <= g->saved)
        return;
    g->saved = step;
    g->failures = g->missing = 0;
}

/* ---- what was before ---- */

void going_recall(struct going *g, const struct going_past *r, uint64_t last_seq)
{
    bool attempt = r->type == GOING_RECORD_ATTEMPT, ended = r->type == GOING_RECORD_ENDED, end = r->type == GOING_RECORD_END;
    bool checkpoint = r->type == GOING_RECORD_CHECKPOINT;

    g->end_seq = end && r->seq > last_seq ? r->seq : 0; /* counts as the last record only */
    g->final = g->end_seq ? r->outcome[0] && strcmp(r->outcome, "paused") != 0 : g->final;
    if ((attempt || ended || end) && r->attempt >= g->attempt)
        g->attempt = r->attempt + 1;
    if (attempt || ended || end)
        g->lost = attempt ? r->attempt : 0;
    if (ended && strcmp(r->outcome, "failed") == 0)
        g->failures++;
    if (attempt || checkpoint)
        going_saved(g, r->step);
    if (end)
        g->failures = 0;
    if (end && strcmp(r->class, "missing") == 0) /* it looks for the file once, and gives its slots back again */
        g->missing = GOING_MISSING_TRIES - 1;
    if (checkpoint && r->seq > last_seq)
        g->unheard = true;
}

bool going_is_drained(const struct going *g, const char *drain)
{
    return drain && (strcmp(drain, "failed") != 0 || !g->unheard);
}

enum going_fact going_ready(struct going *g, struct going_end *ret_end)
{
    static const struct outcome lost = { .outcome = "failed", .class = "fault", .reason = "detd-job was lost", .retry = true };

    if (!g->lost || g->failures <= g->restarts)
        return GOING_FACT_LOCKED;
    g->failures--; /* going_judge() counts it */
    return going_judge(g, &lost, ret_end);
}

/* ---- what comes after ---- */

bool going_grants(const struct going *g, const struct outcome *o)
{
    return strcmp(o->outcome, "failed") == 0 && o->retry && g->wishes;
}

static void set_end(struct going_end *ret, const char *outcome, const char *class, const char *reason)
{
    snprintf(ret->outcome, sizeof ret->outcome, "%s", outcome);
    snprintf(ret->class, sizeof ret->class, "%s", class);
    snprintf(ret->reason, sizeof ret->reason, "%s", reason);
}

void going_stopped(const struct going *g, const char *reason, struct going_end *ret_end)
{
    bool cancel = g->wishes & GOING_WISH_CANCEL, overtime = !cancel && g->wishes & GOING_WISH_LIMIT;
    bool left = !cancel && !(g->wishes & GOING_WISH_PAUSE) && g->wishes & GOING_WISH_LEAVE;

    set_end(ret_end, cancel || overtime ? "cancelled" : "paused", "", left ? "detd-job was told to stop" : reason);
    if (overtime && g->saved > 0)
        snprintf(ret_end->reason, sizeof ret_end->reason, "it ran for %.10g s, its run.time_limit; its newest checkpoint is of step %lld",
                 g->limit_s, (long long)g->saved);
    else if (overtime)
        snprintf(ret_end->reason, sizeof ret_end->reason, "it ran for %.10g s, its run.time_limit; it has no checkpoint", g->limit_s);
}

/* A missing file is no failure of the job: it waits till the file is back, after a few tries without slots. */
static enum going_fact judge_missing(struct going *g, const struct outcome *o, struct going_end *ret_end)
{
    g->waits_for_file = true;
    if (++g->missing < GOING_MISSING_TRIES)
        return GOING_FACT_AGAIN;
    set_end(ret_end, "paused", o->class, "");
    snprintf(ret_end->reason, sizeof ret_end->reason, "it waits for a file that is missing: %s", o->reason);
    return GOING_FACT_CONCLUDED;
}

enum going_fact going_judge(struct going *g, const struct outcome *o, struct going_end *ret_end)
{
    bool failed = strcmp(o->outcome, "failed") == 0;

    if (going_grants(g, o) || strcmp(o->outcome, "paused") == 0) {
        going_stopped(g, failed ? "" : o->reason, ret_end);
        return GOING_FACT_CONCLUDED;
    }
    if (failed && o->missing)
        return judge_missing(g, o, ret_end);
    g->waits_for_file = false;
    g->elsewhere = failed && o->elsewhere ? g->elsewhere + 1 : 0;
    if (g->elsewhere > 0 && g->elsewhere <= GOING_ELSEWHERE_TRIES)
        return GOING_FACT_AGAIN;
    g->failures += failed;
    if (failed && o->retry && !(g->hung && g->fail_on_hang) && g->failures <= g->restarts)
        return GOING_FACT_AGAIN;
    set_end(ret_end, o->outcome, failed ? o->class : "", o->reason);
    if (failed && o->retry && g->failures > 1)
        snprintf(ret_end->reason, sizeof ret_end->reason, "%s (failure %d in a row without a newer checkpoint)", o->reason, g->failures);
    return GOING_FACT_CONCLUDED;
}

bool going_is_overtime(const struct going *g, double ran_s)
{
    return g->limit_s > 0 && !g->wishes && ran_s >= g->limit_s;
}
