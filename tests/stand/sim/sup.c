/* SPDX-License-Identifier: Apache-2.0 */ /* tests/stand/sim/sup.c - supervisors as described in proto/report.h: the
 * records that they make durable in a spool and send, their reactions to the answers, and their deaths. Their own
 * table, supervisor/going.c, decides the effects of a fact. Their records come in the order of supervisor/actions.c.
 * Ranks are played, one step after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "proto/report.h"
#include "proto/tier.h"
#include "tests/stand/sim/sup.h"

enum { SPOOL_ROOM = 40, VAL_EVERY = 3, CANCEL_S = 30, LEAVE_S = 60, HANG_S = 45 };

/* ---- beginning and dying ---- */

static void sup_free(struct sup *s, bool torn)
{
    if (s->link)
        link_drop(s->link, torn);
    s->f->sup = NULL;
    free(s);
}

static void leave(struct sup *s, int status, const char *why)
{
    struct folder *f = s->f;

    say("job %lld: its supervisor leaves with %d", (long long)f->id, status);
    launch_sup_left(f, s->detd, status, why);
    f->lock = LOCK_FREE;
    sup_free(s, false);
}

static void count_death(const struct sup *s)
{
    if (s->going.phase == GOING_ENDED || s->going.phase == GOING_OVER)
        return;
    s->f->deaths++;
    s->f->died = world.mono;
    s->f->died_under = s->detd == detd_number ? detd_number : 0;
}

void sup_kill(struct folder *f)
{
    struct sup *s = f->sup;

    say("job %lld: its supervisor is killed", (long long)f->id);
    f->mute += !s->welcomed;
    count_death(s);
    launch_sup_left(f, s->detd, 137, "");
    f->lock = LOCK_FREE;
    if (world.faults && chance(15)) {
        f->lock = LOCK_STRAY;
        f->stray_s = chance(70) ? 1 + (int)roll(10) : -1;
    }
    sup_free(s, chance(50));
}

/* No process is left of any job. */
void sups_power_off(void)
{
    for (int i = 0; i < world.njobs; i++) {
        struct folder *f = &world.jobs[i];

        if (f->sup)
            sup_kill(f);
        f->lock = LOCK_FREE;
        f->stubborn = 0;
    }
}

void sup_start(struct folder *f, const struct launch_request *rq)
{
    struct sup *s = must_alloc(sizeof *s);

    *s = (struct sup){ .f = f, .rq = *rq, .detd = detd_number, .want_tier = -1, .tier = rq->tier };
    s->going.attempt = rq->attempt;
    s->going.restarts = f->restarts;
    f->sup = s;
    f->lock = LOCK_SUP;
    say("job %lld: supervisor of attempt %d started, last_seq %lld%s%s", (long long)f->id, rq->attempt, (long long)rq->last_seq,
        rq->drain ? ", to end it: " : "", rq->drain ? job_state_name(rq->drain) : "");
}

/* ---- the effects of facts ---- */

static void take(struct sup *s, enum going_fact fact);

static void conclude(struct sup *s, const char *outcome, const char *reason)
{
    snprintf(s->end.outcome, sizeof s->end.outcome, "%s", outcome);
    snprintf(s->end.reason, sizeof s->end.reason, "%s", reason);
    take(s, GOING_FACT_CONCLUDED);
}

static void set_out(struct sup *s, const char *outcome, const char *class, const char *reason)
{
    s->out = (struct outcome){ .retry = strcmp(outcome, "failed") == 0 && strcmp(class, "fault") == 0 };
    snprintf(s->out.outcome, sizeof s->out.outcome, "%s", outcome);
    snprintf(s->out.class, sizeof s->out.class, "%s", class);
    snprintf(s->out.reason, sizeof s->out.reason, "%s", reason);
}

static bool is_refused(void)
{
    return world.faults && chance(1 + world.rates.refused / 2);
}

static void read_needs(struct sup *s)
{
    take(s, is_refused() ? GOING_FACT_REFUSED : GOING_FACT_READ);
}

static void lock_gpus(struct sup *s)
{
    if (world.faults && chance(3))
        conclude(s, "paused", "a GPU is busy");
    else
        take(s, is_refused() ? GOING_FACT_REFUSED : going_ready(&s->going, &s->end));
}

static void pass(struct sup *s)
{
    s->passed = true;
}

/* The newest checkpoint on disk may be without a record. */
static void look_at_published(struct sup *s)
{
    s->going.unheard = s->going.unheard || (s->f->saved > s->going.saved && s->f->saved > s->rq.saved);
    going_saved(&s->going, s->f->saved);
}

static void judge(struct sup *s)
{
    bool failed = strcmp(s->out.outcome, "failed") == 0, granted = going_grants(&s->going, &s->out);

    s->obey_by = 0;
    if (failed)
        spool_outcome(s, false, granted ? "stopped" : "failed", s->out.reason);
    if (failed && !granted)
        look_at_published(s);
    take(s, going_judge(&s->going, &s->out, &s->end));
}

static void start_ranks(struct sup *s)
{
    if (is_refused()) {
        take(s, GOING_FACT_REFUSED);
        return;
    }
    set_out(s, "failed", "fault", "a rank was killed");
    if (is_refused()) { /* by something that does not pass by itself */
        judge(s);
        return;
    }
    s->stage = STAGE_START;
    s->step = s->f->saved;
    s->validated = -1;
    s->passed = s->fails = s->mute = false;
    s->obey_by = s->hangs = 0;
    take(s, GOING_FACT_STARTED);
}

static void clean(struct sup *s)
{
    if (world.faults && chance(10) && s->going.looks < GOING_LEFT_LOOKS)
        take(s, GOING_FACT_REMAIN);
    else
        judge(s);
}

static void end(struct sup *s)
{
    s->going.end_seq = (uint64_t)spool_outcome(s, true, s->end.outcome, s->end.reason);
    take(s, GOING_FACT_WRITTEN);
}

static void end_stopped(struct sup *s)
{
    going_stopped(&s->going, "", &s->end);
    end(s);
}

static void die(struct sup *s)
{
    s->died = true;
}

static void await_ack(struct sup *s)
{
    if (s->f->acked >= (int64_t)s->going.end_seq)
        take(s, GOING_FACT_ACKED);
}

static void take(struct sup *s, enum going_fact fact)
{
    static void (*const actions[])(struct sup * s) = {
        [GOING_READ] = read_needs, [GOING_LOCK] = lock_gpus, [GOING_START] = start_ranks,       [GOING_PASS] = pass,
        [GOING_CLEAN] = clean,     [GOING_END] = end,        [GOING_END_STOPPED] = end_stopped, [GOING_CONFIRM] = await_ack,
        [GOING_AWAIT] = await_ack, [GOING_DIE] = die,
    };
    enum going_action action = going_next(&s->going, fact);

    if (s->going.wait_ms != GOING_KEEP)
        s->due = s->going.wait_ms ? world.mono + s->going.wait_ms / 1000.0 : 0;
    if (actions[action])
        actions[action](s);
}

/* ---- beginning ---- */

/* The same as in supervisor/history.c. */
static void recall(struct sup *s)
{
    static const enum going_record types[] = { [REC_ATTEMPT] = GOING_RECORD_ATTEMPT,
                                               [REC_CHECKPOINT] = GOING_RECORD_CHECKPOINT,
                                               [REC_ENDED] = GOING_RECORD_ENDED,
                                               [REC_END] = GOING_RECORD_END };
    const struct folder *f = s->f;

    for (int i = 0; i < f->count; i++) {
        const struct record *r = &f->records[i];

        going_recall(&s->going, &(struct going_past){ types[r->type], (uint64_t)r->seq, r->attempt, r->step, r->outcome, "" },
                     (uint64_t)s->rq.last_seq);
    }
}

static void close_lost(struct sup *s, int lost)
{
    int next = s->going.attempt;

    s->going.attempt = s->going.lost = lost;
    spool_outcome(s, false, "failed", "detd-job was lost");
    s->going.attempt = next;
    look_at_published(s);
    s->going.failures++;
}

static void begin(struct sup *s)
{
    const char *drain = s->rq.drain ? job_state_name(s->rq.drain) : NULL;
    struct going *g = &s->going;

    s->opened = true;
    recall(s);
    s->step = s->f->saved;
    if (g->end_seq) {
        take(s, GOING_FACT_RECORDED);
        return;
    }
    if (g->lost)
        close_lost(s, g->lost);
    else
        look_at_published(s);
    if (going_is_drained(g, drain)) {
        if (s->rq.drain == JOB_FAILED && s->f->deaths <= s->f->restarts)
            fail("job %lld: given up after %d deaths without a newer checkpoint, of %d that are allowed", (long long)s->f->id, s->f->deaths,
                 s->f->restarts);
        conclude(s, drain, s->rq.reason);
        return;
    }
    if (drain && !g->lost && g->attempt == s->rq.attempt) {
        g->attempt++;
        close_lost(s, s->rq.attempt);
    }
    take(s, GOING_FACT_BEGUN);
}

static void open_up(struct sup *s)
{
    struct folder *f = s->f;

    if (world.faults && chance(world.rates.refused / 2)) {
        f->refused = world.mono;
        f->refused_under = s->detd == detd_number ? detd_number : 0;
        leave(s, SUP_EXIT_REFUSED, "no room for the spool");
    } else if (world.faults && f->count > 0 && chance(world.rates.unreadable)) {
        f->refused = world.mono;
        f->refused_under = s->detd == detd_number ? detd_number : 0;
        f->unreadable++;
        leave(s, SUP_EXIT_UNREADABLE, "input/output error");
    } else if (world.faults && chance(world.rates.mute)) {
        f->mute++;
        leave(s, 127, "");
    } else {
        begin(s);
    }
}

/* ---- ranks ---- */

static void rank_fault(struct sup *s)
{
    static const enum going_fact facts[] = { GOING_FACT_FAILED, GOING_FACT_HUNG, GOING_FACT_BROKEN };
    uint32_t what = roll(4);

    s->fails = false;
    if (what < 3) {
        take(s, facts[what]);
        return;
    }
    say("job %lld: its ranks stand still", (long long)s->f->id);
    s->mute = true;
    s->hangs = s->going.phase == GOING_RUNNING ? world.mono + HANG_S : 0;
}

static bool is_last(const struct sup *s)
{
    return s->step >= s->f->steps;
}

static bool is_cancelled(const struct sup *s)
{
    return s->going.wishes & GOING_WISH_CANCEL;
}

static bool is_to_save(const struct sup *s)
{
    return s->step > s->f->saved && (is_last(s) || s->step % s->f->save_every == 0 || s->want_save || (s->passed && !is_cancelled(s)));
}

static void say_end(struct sup *s, const char *outcome)
{
    set_out(s, outcome, "", "");
    take(s, GOING_FACT_DONE);
}

static void obey(struct sup *s)
{
    s->stage = STAGE_STEP;
    s->want_save = false;
    if (s->passed) {
        say_end(s, is_cancelled(s) ? "cancelled" : "paused");
    } else if (is_last(s)) {
        say_end(s, "completed");
    } else if (s->want_tier >= 0) {
        s->tier = s->want_tier;
        s->want_tier = -1;
        spool_tier(s);
    }
}

static void train(struct sup *s)
{
    switch (s->stage) {
    case STAGE_START:
        spool_attempt(s);
        s->stage = STAGE_STEP;
        return;
    case STAGE_STEP:
        if (is_last(s)) { /* a checkpoint of the last step was there, and the end was not recorded */
            s->stage = STAGE_WISHES;
            return;
        }
        s->step++;
        spool_loss(s, false);
        s->stage = STAGE_VAL;
        if (s->step == s->f->fails_at) {
            set_out(s, "failed", "user", "the loss is not finite");
            take(s, GOING_FACT_FAILED);
        }
        return;
    case STAGE_VAL:
        s->stage = STAGE_PUBLISH;
        if (s->validated != s->step && (is_last(s) || s->step % VAL_EVERY == 0 || s->want_eval)) {
            spool_loss(s, true);
            s->validated = s->step;
            s->want_eval = false;
            s->stage = STAGE_EVAL;
        }
        return;
    case STAGE_EVAL:
        spool_eval(s);
        s->stage = STAGE_PUBLISH;
        return;
    case STAGE_PUBLISH:
        s->stage = is_to_save(s) ? STAGE_SAVED : STAGE_WISHES;
        if (s->stage == STAGE_SAVED)
            s->f->saved = s->step; /* on the disk, and a kill may come before its record */
        return;
    case STAGE_SAVED:
        spool_checkpoint(s);
        s->stage = STAGE_WISHES;
        return;
    case STAGE_WISHES:
        obey(s);
        return;
    }
}

static bool is_full(const struct sup *s)
{
    return spool_last(s->f) - s->f->acked > SPOOL_ROOM;
}

/* Ranks may take their time to say hello, to leave, and to die. */
static bool ranks_work(struct sup *s)
{
    bool lives = s->going.phase == GOING_GREETING || s->going.phase == GOING_RUNNING;

    if (is_full(s) || (lives && s->mute) || (world.faults && s->going.phase != GOING_RUNNING && chance(50)))
        return false;
    if (lives && s->fails)
        rank_fault(s);
    else if (s->going.phase == GOING_GREETING)
        take(s, GOING_FACT_GREETED);
    else if (s->going.phase == GOING_RUNNING)
        train(s);
    else if (s->going.phase == GOING_STOPPING || s->going.phase == GOING_KILLED)
        take(s, GOING_FACT_GONE);
    else
        return false;
    return true;
}

static bool is_due(double *when)
{
    bool due = *when != 0 && world.mono >= *when;

    *when = due ? 0 : *when;
    return due;
}

static bool work(struct sup *s)
{
    if (!s->opened)
        open_up(s);
    else if (s->going.phase == GOING_OVER)
        leave(s, s->died, s->died ? "input/output error" : "");
    else if (is_due(&s->due))
        take(s, s->going.phase == GOING_GREETING && is_full(s) ? GOING_FACT_HELD : GOING_FACT_DUE);
    else if (is_due(&s->obey_by))
        take(s, GOING_FACT_DISOBEYED);
    else if (is_due(&s->hangs))
        take(s, GOING_FACT_HUNG);
    else
        return ranks_work(s);
    return true;
}

/* ---- talking ---- */

/* The same as in supervisor/orders.c. */
static void wish(struct sup *s, enum going_fact fact, double seconds)
{
    if (s->going.phase == GOING_RUNNING && seconds > 0)
        s->obey_by = world.mono + seconds;
    take(s, fact);
}

static void acked(struct sup *s, int64_t seq)
{
    check_ack(s->f, seq);
    if (seq > s->f->acked)
        s->f->acked = seq;
    if (s->going.phase == GOING_ENDED)
        await_ack(s);
}

static void take_word(struct sup *s, const json_t *msg)
{
    const char *word = json_string_value(json_object_get(msg, "word")), *tier = json_string_value(json_object_get(msg, "tier"));
    double seconds = json_number_value(json_object_get(msg, "deadline"));

    say("job %lld: is told: %s", (long long)s->f->id, word);
    if (strcmp(word, "cancel") == 0) {
        if (!is_cancelled(s))
            wish(s, GOING_FACT_CANCEL, CANCEL_S);
    } else if (strcmp(word, "pause") == 0) {
        if (!is_cancelled(s) && !(s->going.wishes & GOING_WISH_PAUSE))
            wish(s, GOING_FACT_PAUSE, seconds);
        else if (!is_cancelled(s) && s->going.phase == GOING_RUNNING && seconds > 0 && s->obey_by == 0)
            s->obey_by = world.mono + seconds;
    } else if (strcmp(word, "checkpoint") == 0) {
        s->want_save = true;
    } else if (strcmp(word, "eval") == 0) {
        s->want_eval = true;
    } else if (strcmp(word, "tier") == 0) {
        s->want_tier = tier_parse(tier);
    } else {
        fail("job %lld: detd says '%s'", (long long)s->f->id, word);
    }
}

static void take_line(struct sup *s, const char *line)
{
    json_t *msg = json_loads(line, 0, NULL), *word;
    const char *type = json_string_value(json_object_get(msg, "type"));
    size_t i;

    if (!type) {
        fail("job %lld: detd sends '%s'", (long long)s->f->id, line);
    } else if (strcmp(type, "welcome") == 0) {
        s->welcomed = true;
        s->f->unreadable = s->f->mute = 0;
        s->sent = json_integer_value(json_object_get(msg, "last_seq"));
        acked(s, s->sent);
        json_array_foreach (json_object_get(msg, "control"), i, word) {
            take_word(s, word);
        }
    } else if (strcmp(type, "ack") == 0) {
        acked(s, json_integer_value(json_object_get(msg, "seq")));
    } else if (strcmp(type, "control") == 0) {
        take_word(s, msg);
    }
    json_decref(msg);
}

static bool greet(struct sup *s)
{
    char line[256];

    if (!s->opened)
        return false;
    s->link = link_connect();
    if (!s->link)
        return false;
    s->welcomed = false;
    memcpy(s->link->nonce, s->rq.nonce, sizeof s->link->nonce);
    s->link->job = s->f->id;
    snprintf(line, sizeof line, "{\"type\":\"hello\",\"protocol\":1,\"job\":%lld,\"attempt\":%d,\"nonce\":\"%s\",\"pid\":1,\"beats\":true}",
             (long long)s->f->id, s->going.attempt, s->rq.nonce);
    link_send(s->link, line);
    return true;
}

static bool send_next(struct sup *s)
{
    const struct folder *f = s->f;
    char line[RECORD_TEXT + 64];
    int64_t seq = s->sent + 1;

    if (!s->welcomed || s->link->nto_detd > BYTES_ROOM / 2 || seq > spool_last(f))
        return false;
    if (seq < 1)
        fail("job %lld: detd has report %lld", (long long)f->id, (long long)s->sent);
    s->sent = seq;
    if (world.faults && chance(world.rates.lost)) { /* lost on the way: the next report comes after a gap, or no report comes */
        say("job %lld: report %lld is lost", (long long)f->id, (long long)seq);
        return true;
    }
    if (world.faults && chance(2) && seq > 1) /* sent twice */
        s->sent--;
    snprintf(line, sizeof line, "{\"type\":\"report\",\"seq\":%lld,\"rec\":%s}", (long long)seq, f->records[seq - 1].text);
    link_send(s->link, line);
    return true;
}

static bool talk(struct sup *s)
{
    const char *line;

    if (s->link && s->link->detd_closed) {
        link_drop(s->link, false);
        s->link = NULL;
        s->welcomed = false;
        return true;
    }
    if (!s->link)
        return greet(s);
    line = link_line(s->link);
    if (!line)
        return send_next(s);
    take_line(s, line);
    return true;
}

static bool step(struct sup *s)
{
    if (s->silent_s > 0)
        return false;
    if (chance(50))
        return talk(s) || work(s);
    return work(s) || talk(s);
}

static struct sup *pick(void)
{
    int n = 0;

    for (int i = 0; i < world.njobs; i++)
        n += world.jobs[i].sup != NULL;
    if (n == 0)
        return NULL;
    n = (int)roll((uint32_t)n);
    for (int i = 0; i < world.njobs; i++)
        if (world.jobs[i].sup && n-- == 0)
            return world.jobs[i].sup;
    return NULL;
}

bool sups_step(void)
{
    struct sup *s = pick();

    if (!s)
        return false;
    if (step(s))
        return true;
    for (int i = 0; i < world.njobs; i++)
        if (world.jobs[i].sup && step(world.jobs[i].sup))
            return true;
    return false;
}

void sups_tick(void)
{
    for (int i = 0; i < world.njobs; i++) {
        struct sup *s = world.jobs[i].sup;
        char line[256];

        if (!s)
            continue;
        if (s->silent_s > 0) {
            s->silent_s--;
            continue;
        }
        if (!s->link || !s->welcomed || s->link->nto_detd > BYTES_ROOM / 2)
            continue;
        snprintf(
            line, sizeof line,
            "{\"type\":\"status\",\"attempt\":%d,\"step\":%lld,\"phase\":\"forward\",\"images_per_s\":8,\"cpu_seconds\":1,\"max_rss\":1,"
            "\"ranks\":[]}",
            s->going.attempt, (long long)s->step);
        link_send(s->link, line);
        if (world.faults && s->sent < spool_last(s->f) && chance(2)) /* sends reports again that were not acked */
            s->sent = s->f->acked;
    }
}

/* ---- faults ---- */

void sup_fault(enum fault what)
{
    struct sup *s = pick();

    if (!s)
        return;
    if (what == FAULT_KILL) {
        sup_kill(s->f);
    } else if (what == FAULT_SILENCE) {
        s->silent_s = 5 + (int)roll(150);
        say("job %lld: stands still for %d s", (long long)s->f->id, s->silent_s);
    } else if (what == FAULT_STUBBORN) {
        s->f->stubborn = (int)roll(3);
    } else if (what == FAULT_RANK && s->opened && chance(15)) {
        say("job %lld: its supervisor cannot write", (long long)s->f->id);
        count_death(s);
        take(s, GOING_FACT_FATAL);
    } else if (what == FAULT_RANK && s->opened && chance(25) && !(s->going.wishes & GOING_WISH_LEAVE)) {
        say("job %lld: its supervisor is told to leave", (long long)s->f->id);
        wish(s, GOING_FACT_LEAVE, LEAVE_S);
    } else if (what == FAULT_RANK) {
        s->fails = true;
    } else if (s->link) {
        say("job %lld: its connection breaks", (long long)s->f->id);
        link_drop(s->link, true);
        s->link = NULL;
        s->welcomed = false;
    }
}
