#include "supervisor/orders.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <stdio.h>
#include <string.h>

#include "proto/line.h"
#include "supervisor/attempt.h"
#include "supervisor/ranks/log.h"
#include "supervisor/ranks/program.h"
#include "supervisor/ranks/ranks.h"
#include "supervisor/records.h"
#include "supervisor/speech.h"

enum { CANCEL_S = 30, LEAVE_S = 60, MAX_DEADLINE_S = 86400 };

/* Within detd's deadline a program has a third of the time to answer a word, a third to save, and a third from the
 * signal to the end. */
#define THIRD (1.0 / 3)

static void on_deadline(uv_timer_t *timer);

/* Ranks that have answered save what they have, for as long as detd lets them. */
static void hurry_program(struct orders *o)
{
    static const char text[] = "the ranks did not answer the word in time, and get program.stop_signal";

    if (!o->answered && orders_is_answered(o) && speech_has_answer(o->speech, false)) {
        o->answered = true;
        if (o->stop_s > 0)
            uv_timer_start(&o->deadline, on_deadline, (uint64_t)(1000 * THIRD * o->stop_s), 0);
        return;
    }
    records_warn(o->records, -1, "stop", "%s", text);
    o->attempt->stopped = true;
    o->fact(o->arg, GOING_FACT_DISOBEYED, text);
}

static void on_deadline(uv_timer_t *timer)
{
    struct orders *o = timer->data;
    char text[100];

    if (o->program) {
        hurry_program(o);
        return;
    }
    snprintf(text, sizeof text, "the ranks did not obey %s in time and were killed",
             o->going->wishes & GOING_WISH_CANCEL ? "cancel" : "pause");
    records_warn(o->records, -1, "stop", "%s", text);
    o->fact(o->arg, GOING_FACT_DISOBEYED, text);
}

static void send_word(const struct orders *o, const char *word, const char *tier)
{
    char text[128];
    struct line l;

    line_begin(&l, text, sizeof text, "control");
    line_str(&l, "word", word);
    if (tier)
        line_str(&l, "tier", tier);
    ranks_say(o->attempt->ranks, 0, &l);
    job_log("%s%s%s passed to rank 0", word, tier ? " " : "", tier ? tier : "");
}

/* program.stop_grace, or less if that part of detd's deadline is shorter. */
static double bounded_by_detd(const struct orders *o, double part)
{
    double grace = o->program->spec->program_stop_grace;

    return o->stop_s > 0 && part * o->stop_s < grace ? part * o->stop_s : grace;
}

/* Whether the ranks of the program ask for the word of the wish to stop. */
static bool is_asked_for(const struct orders *o)
{
    return speech_knows(o->speech, o->stop);
}

/* Gives a word to a program. A program that does not ask for it yet may do so later. */
static void give(struct orders *o, enum word word, const char *name)
{
    unsigned bit = 1u << word;
    char text[120];

    if (!(o->waiting & bit) || !speech_has_answer(o->speech, false))
        return;
    if (speech_give(o->speech, word)) {
        o->waiting &= ~bit;
        o->told &= ~bit;
    } else if (!(o->told & bit)) {
        snprintf(text, sizeof text, "not all ranks of the program ask for the word %s so far; it is passed on when they do", name);
        records_event(o->records, -1, "info", "word", text, NULL);
        o->told |= bit;
    }
}

/* One word at a time: a rank that has not answered yet must not miss it. */
static void give_words(struct orders *o)
{
    give(o, WORD_CANCEL, "cancel");
    give(o, WORD_PAUSE, "pause");
    give(o, WORD_CHECKPOINT, "checkpoint");
    give(o, WORD_VALIDATE, "validate");
}

bool orders_is_answered(const struct orders *o)
{
    enum word word = word_of(o->speech->words.order);

    return o->stop && (word == WORD_PAUSE || word == WORD_CANCEL) && speech_has_answer(o->speech, true);
}

void orders_tick(struct orders *o)
{
    if (o->program && o->waiting && o->going->phase == GOING_RUNNING)
        give_words(o);
}

void orders_send(struct orders *o)
{
    static const struct {
        enum orders_word word;
        const char *name;
    } words[] = { { ORDERS_CHECKPOINT, "checkpoint" }, { ORDERS_EVAL, "eval" }, { ORDERS_PAUSE, "pause" }, { ORDERS_CANCEL, "cancel" } };

    if (o->going->phase != GOING_RUNNING)
        return;
    if (o->program) {
        give_words(o);
        return;
    }
    if (o->waiting & ORDERS_TIER && o->tier[0])
        send_word(o, "tier", o->tier);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (o->waiting & words[i].word)
            send_word(o, words[i].name, NULL);
    o->waiting = 0;
}

static void start_deadline(struct orders *o)
{
    if (o->stop_s > 0)
        uv_timer_start(&o->deadline, on_deadline, (uint64_t)(1000 * o->stop_s), 0);
}

int orders_term_ms(const struct orders *o)
{
    double s = !o->program ? 0 : bounded_by_detd(o, is_asked_for(o) ? THIRD : 1);

    return s > 0 ? (int)(1000 * s) : o->program ? 1 : 0;
}

static void signal_program(struct orders *o)
{
    o->attempt->stopped = true;
    o->fact(o->arg, GOING_FACT_DISOBEYED, "");
}

static void pass_to_program(struct orders *o)
{
    double s = bounded_by_detd(o, THIRD);

    o->answered = false;
    if (!is_asked_for(o) || s <= 0) {
        signal_program(o);
        return;
    }
    o->waiting |= o->stop;
    give_words(o);
    uv_timer_start(&o->deadline, on_deadline, (uint64_t)(1000 * s), 0);
}

void orders_pass(struct orders *o)
{
    if (o->program) {
        pass_to_program(o);
        return;
    }
    o->waiting |= o->stop;
    orders_send(o);
    start_deadline(o);
}

/* A wish to stop. Ranks that were not told to go yet have nothing to save. */
static void stop(struct orders *o, enum going_fact fact, enum orders_word word, double seconds)
{
    o->stop = word;
    o->stop_s = seconds;
    o->fact(o->arg, fact, "stopped before it began");
}

/* The pause is under way. A deadline that comes later, for example because its slots are wanted by now, counts; a
 * deadline that is given again after a reconnect puts nothing off. */
static void hurry_pause(struct orders *o, double seconds)
{
    o->stop_s = seconds;
    if (o->going->phase == GOING_RUNNING && !uv_is_active((uv_handle_t *)&o->deadline))
        start_deadline(o);
}

static void want_tier(struct orders *o, const char *tier)
{
    if (!tier || strlen(tier) >= sizeof o->tier) {
        job_log("command tier without a tier ignored");
        return;
    }
    if (strcmp(o->tier, tier) == 0)
        return; /* given again after a reconnect */
    snprintf(o->tier, sizeof o->tier, "%s", tier);
    o->waiting |= ORDERS_TIER;
    orders_send(o);
}

void orders_take(struct orders *o, const json_t *msg)
{
    const char *word = json_string_value(json_object_get(msg, "word"));
    const json_t *deadline = json_object_get(msg, "deadline");
    double seconds = json_is_number(deadline) ? json_number_value(deadline) : 0;
    bool cancelled = o->going->wishes & GOING_WISH_CANCEL, paused = o->going->wishes & GOING_WISH_PAUSE;

    if (seconds < 0 || seconds > MAX_DEADLINE_S)
        seconds = MAX_DEADLINE_S;
    if (!word) {
        job_log("a command without a word ignored");
    } else if (strcmp(word, "cancel") == 0) {
        if (!cancelled)
            stop(o, GOING_FACT_CANCEL, ORDERS_CANCEL, seconds > 0 ? seconds : CANCEL_S);
    } else if (strcmp(word, "pause") == 0) {
        if (!cancelled && !paused)
            stop(o, GOING_FACT_PAUSE, ORDERS_PAUSE, seconds);
        else if (!cancelled)
            hurry_pause(o, seconds);
    } else if (strcmp(word, "tier") == 0) {
        want_tier(o, json_string_value(json_object_get(msg, "tier")));
    } else if (strcmp(word, "checkpoint") == 0 || strcmp(word, "eval") == 0) {
        o->waiting |= word[0] == 'c' ? ORDERS_CHECKPOINT : ORDERS_EVAL;
        orders_send(o);
    } else {
        job_log("command '%.40s' is not known and ignored", word);
    }
}

void orders_leave(struct orders *o)
{
    if (o->going->wishes & GOING_WISH_LEAVE)
        return;
    job_log("told to stop");
    stop(o, GOING_FACT_LEAVE, ORDERS_PAUSE, LEAVE_S);
}

void orders_end(struct orders *o)
{
    if (!(o->going->wishes & GOING_WISH_CANCEL))
        stop(o, GOING_FACT_CANCEL, ORDERS_CANCEL, CANCEL_S);
}

void orders_look_at_limit(struct orders *o, double ran_s)
{
    if (!going_is_overtime(o->going, ran_s))
        return;
    records_event(
        o->records, -1, "info", "limit",
        o->program ? "its run.time_limit is over: it is told to end" : "its run.time_limit is over: it writes a checkpoint and ends", NULL);
    stop(o, GOING_FACT_LIMIT, ORDERS_PAUSE, 0); /* a validation that is under way comes first */
}

void orders_attempt_begins(struct orders *o)
{
    if (o->tier[0])
        o->waiting |= ORDERS_TIER;
}

void orders_attempt_over(struct orders *o)
{
    uv_timer_stop(&o->deadline);
}

void orders_tier_settled(struct orders *o, const char *tier)
{
    if (strcmp(tier, o->tier) == 0)
        o->tier[0] = '\0';
}
