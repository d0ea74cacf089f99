/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/orders.h - orders to stop, from detd, SIGTERM and
 * run.time_limit. The table of states gets them as facts, and rank 0 gets them as messages. */
#pragma once
#include <jansson.h>
#include <uv.h>

#include "proto/word.h"
#include "supervisor/going.h"

struct attempt;
struct program;
struct records;
struct speech;

/* Commands that wait until rank 0, or a program, can take them: bits of the words, and tier. */
enum orders_word {
    ORDERS_TIER = 1,
    ORDERS_CHECKPOINT = 1 << WORD_CHECKPOINT,
    ORDERS_EVAL = 1 << WORD_VALIDATE,
    ORDERS_PAUSE = 1 << WORD_PAUSE,
    ORDERS_CANCEL = 1 << WORD_CANCEL
};

struct orders {
    const struct going *going;
    struct attempt *attempt;
    const struct program *program; /* NULL: a model */
    struct records *records;
    struct speech *speech; /* of a program */
    bool answered;         /* the ranks of a program have answered the wish to stop: they may take their time */
    /* text: why the ranks are stopped, if the fact stops them. */
    void (*fact)(void *arg, enum going_fact fact, const char *text);
    void *arg;
    uv_timer_t deadline; /* of the wish to stop that rank 0 was told; the caller inits and closes it, with this struct as its data */
    unsigned waiting;    /* enum orders_word */
    unsigned told;       /* of those: the user knows that a program does not ask for them */
    char tier[16];       /* asked for and not agreed; "": none */
    enum orders_word stop;
    double stop_s; /* for that wish to stop; 0: any time */
};

/* A command of detd. */
void orders_take(struct orders *o, const json_t *msg);
/* SIGTERM came. */
void orders_leave(struct orders *o);
/* The job is to end as after cancel. */
void orders_end(struct orders *o);
/* Once a second: ran_s counts against run.time_limit. */
void orders_look_at_limit(struct orders *o, double ran_s);
/* The action GOING_PASS: gives rank 0, or a program, the wish to stop, with its deadline. */
void orders_pass(struct orders *o);
/* Gives rank 0 what waits for it. Does nothing until the ranks were told to go. */
void orders_send(struct orders *o);
/* Milliseconds from the signal to stop to SIGKILL: program.stop_grace, or less if detd's deadline is shorter; 0: a
 * model. */
int orders_term_ms(const struct orders *o);
/* An attempt begins: a tier that the one before has not agreed to is asked for again. */
void orders_attempt_begins(struct orders *o);
void orders_attempt_over(struct orders *o);
/* Once a second: gives the ranks of a program the next word, when they have answered the last one. */
void orders_tick(struct orders *o);
/* Whether the ranks of a program have answered a wish to stop. */
bool orders_is_answered(const struct orders *o);
/* Rank 0 has agreed to the tier, or refused it: it may be asked for again. */
void orders_tier_settled(struct orders *o, const char *tier);
