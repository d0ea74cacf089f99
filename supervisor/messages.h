/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/messages.h - messages from the ranks, and the answers to
 * them. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "supervisor/going.h"

struct attempt;
struct durable;
struct needs;
struct orders;
struct records;

struct messages {
    uv_loop_t *loop;
    struct going *going; /* hears of checkpoints, see going_saved() */
    struct attempt *attempt;
    const struct needs *needs;
    struct records *records;
    struct orders *orders;
    /* text: why the ranks are stopped, if the fact stops them. */
    void (*fact)(void *arg, enum going_fact fact, const char *text);
    void *arg;
    struct durable *durable; /* an answer to rank 0 that waits for late records; NULL: none */
};

/* A line of a rank. */
void messages_take(struct messages *m, int rank, const char *text, size_t len);
/* The action GOING_GO: tells all ranks to go. */
void messages_go(struct messages *m);
/* All records are written: an answer that waits until they are durable may begin to. */
void messages_answer_late(struct messages *m);
void messages_close(struct messages *m);
