/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/spool/outcome.h - how an attempt ended, from what its ranks said
 * and how they left. Pure. */
#pragma once
#include <stdbool.h>

enum { OUTCOME_TEXT = 1000, OUTCOME_WORD = 16 };

/* What is known of a rank once it is gone. */
struct outcome_rank {
    bool ended;  /* it said `end` */
    bool killed; /* by detd-job, so how it left means nothing */
    bool left;   /* the process has ended, with `status` as of waitpid() */
    int status;
    int order; /* ranks are numbered in the order in which they ended or left */
    char outcome[OUTCOME_WORD], class[OUTCOME_WORD];
    char reason[OUTCOME_TEXT];
};

struct outcome {
    char outcome[OUTCOME_WORD]; /* completed, failed, cancelled, paused */
    char class[OUTCOME_WORD];
    char reason[OUTCOME_TEXT];
    bool retry;     /* failed, and another attempt may do better */
    bool missing;   /* likewise: it waits for a file, and the failure does not count against run.restarts */
    bool elsewhere; /* likewise: another process had its port, so it is repeated with another one, and does not count */
};

/* Rank 0's word counts when it is not "failed": it has seen the last step of all. Then `cause` (why detd-job itself
 * stopped the ranks; "" otherwise), then errors that nobody's retry repairs, then a file that is missing, then the
 * first crash, then the first failure, then who left with status 1 and said nothing, as a rank does that lost another;
 * of equal ones, the first in time. So the rank that broke is named, and not those that lost it. */
void outcome_decide(const struct outcome_rank *ranks, int nranks, const char *cause, struct outcome *ret);
/* What is known of the attempt of a program besides its ranks. */
struct outcome_program {
    const char *cause; /* as above */
    bool stopped;      /* the ranks were told to stop: by a word, by a signal, or by the end of the node */
    bool saved;        /* the attempt has published a checkpoint */
    int error_rank;    /* the rank whose exception was read, or -1 */
    const char *error; /* that exception */
};

/* The same for a program: exit codes are its words. A rank that ends after it was told to stop has left, not failed.
 * Code 0 of all ranks is completed. Another code fails the job at once, unless the attempt has published a checkpoint.
 * A signal that detd did not send may be tried again. */
void outcome_of_program(const struct outcome_rank *ranks, int nranks, const struct outcome_program *p, struct outcome *ret);
/* The first rank to fail: it was not killed, and left with another status than 0; -1: none. */
int outcome_first_failed(const struct outcome_rank *ranks, int nranks);
/* "was killed by signal 11 (Segmentation fault)" and so on. */
void outcome_describe(int status, char *text, int size);
