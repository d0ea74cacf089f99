/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/attempt.h - the attempt under way: its ranks and what is known
 * of them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/job/jobspec.h"
#include "supervisor/spool/outcome.h"

struct err;
struct program;
struct ranks;
struct ranks_config;
struct watch;
struct watch_verdict;

struct attempt {
    int nranks, number;
    struct ranks *ranks;           /* NULL: none */
    struct watch *watch;           /* likewise */
    const struct program *program; /* NULL: a model */
    uint64_t began_ms;
    bool stopped;            /* the ranks of a program were told to stop */
    bool left;               /* an event has told what its ranks left behind */
    bool saved;              /* the attempt of a program has published a checkpoint */
    int idle[JOB_MAX_RANKS]; /* looks in a row that found the rank stopped, or in uninterruptible sleep */
    struct attempt_rank {
        bool hello, closed, gone;
        struct outcome_rank out;
    } rank[JOB_MAX_RANKS];
    int order;    /* number of ranks that have said `end`, or left without it */
    bool started; /* rank 0 said `start` */
    char nccl_id[1024], device[64];
    char waits[256];          /* what rank 0 waits for, for the status; "": nothing */
    char cause[OUTCOME_TEXT]; /* why this program stopped the ranks; "": their own words count */
};

/* Starts all ranks or none; nothing is known of them yet. */
int attempt_start(struct attempt *a, const struct ranks_config *config, struct err *err);
void attempt_close(struct attempt *a);
/* SIGKILL to all ranks that live. A rank that closed its socket and lived on is the cause, if nothing else is. */
void attempt_kill(struct attempt *a);
/* The ranks were killed: the first that still lives, and a sentence about it; -1: none. */
int attempt_stuck(const struct attempt *a, char *text, size_t size);
/* The first rank that has not said hello within the time; makes it the cause. */
int attempt_unheard(struct attempt *a, int seconds);
/* The rank's process has ended with that status (as of waitpid()). */
void attempt_gone(struct attempt *a, int rank, int status);
bool attempt_all_gone(const struct attempt *a);
/* A look at the progress pages. Returns whether a rank hangs. busy: rank 0 waits for an answer. */
bool attempt_look(struct attempt *a, double now_s, bool busy, struct watch_verdict *ret);
/* A rank that does not run: it is stopped, or waits for a disk, for a while. Writes a sentence; "": there is none. */
void attempt_tell_idle(struct attempt *a, char *ret, size_t size);
/* All ranks are gone: how it ended. */
void attempt_outcome(const struct attempt *a, struct outcome *ret);
