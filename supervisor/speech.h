/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/speech.h - what the ranks of a program say on descriptor 3
 * (PROTOCOL.md), and what comes of it: rows of losses, scores, events. A line that makes no sense is left out: nothing
 * that a program says ends its job. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/job/jobspec.h"
#include "supervisor/program/silence.h"
#include "supervisor/program/words.h"

struct attempt;
struct going;
struct needs;
struct publish;
struct records;
struct rows;
struct watch_verdict;

enum { SPEECH_EVENTS = 1000 /* of a rank, in an attempt */, SPEECH_TIER = 8 };

struct speech {
    const struct going *going;
    const struct attempt *attempt;
    const struct needs *needs;
    struct records *records;
    struct publish *publish;
    struct rows *rows; /* of the attempt; NULL: there is none */
    struct speech_rank {
        uint64_t lines, left_out, events;
        unsigned words; /* that it asks for: 1 << enum word (proto/word.h) */
        int stacks;     /* signal that dumps its stacks; 0: none */
        pid_t pid;      /* of the process that says so */
        bool finished;
    } rank[JOB_MAX_RANKS];
    char tier[SPEECH_TIER];
    double row_time;    /* of the newest row of train, 0: none */
    bool reported;      /* some rank has reported a share in this attempt */
    struct words words; /* that was given last */
    bool given;         /* in this attempt */
    struct silence silence;
};

/* The ranks were started: records the attempt. */
void speech_begin(struct speech *s);
/* A whole line of a rank. */
void speech_take(struct speech *s, int rank, const char *text, size_t len);
/* A line was left out: why. */
void speech_left_out(struct speech *s, int rank, const char *why);
/* The rank has left; status as of waitpid(). */
void speech_gone(struct speech *s, int rank, int status);
/* The attempt is over. */
void speech_end(struct speech *s);
/* Fills *ret with the present state of the rank: its page, and its reports. */
void speech_look(const struct speech *s, int rank, struct silence_page *ret);
/* A look at all ranks. Returns whether one hangs. */
bool speech_hangs(struct speech *s, double now_s, struct watch_verdict *ret);
/* Gives the word to the ranks that still run. Returns false if one of them does not ask for it. */
bool speech_give(struct speech *s, enum word word);
/* Whether the ranks that run have answered the last word with yes: all of them, or at least one (any). True for `all`
 * if none was given. */
bool speech_has_answer(const struct speech *s, bool any);
/* Lets the ranks that have named a signal for it dump their stacks. Returns whether there are such. */
bool speech_dump_stacks(const struct speech *s);
/* Whether all ranks ask for all of these words. */
bool speech_knows(const struct speech *s, unsigned words);
