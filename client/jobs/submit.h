/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/submit.h - queues a job. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

/* Steals spec. 0 with *ret_id, or an exit code after complaining. */
int submit_spec(struct context *ctx, json_t *spec, int64_t *ret_id);
/* Options of a command that queues a job. */
struct queueing {
    bool wait, watch, no_check;
};
/* Rows of an option table, for take_queueing(). */
#define QUEUEING_OPTIONS                                                     \
    { "wait", no_argument, NULL, 'w' }, { "watch", no_argument, NULL, 'W' }, \
    {                                                                        \
        "no-check", no_argument, NULL, 'n'                                   \
    }
/* Notes one of these options; ignores any other. */
void take_queueing(int option, struct queueing *q);
/* Sets the keys of `run` that --time LIMIT (option 't') and --after ID[:ok] ('a') stand for; ignores any other option.
 * Returns 0, or CODE_USAGE after complaining. */
int take_wish(const struct context *ctx, int option, const char *text, json_t *run);
/* submit_spec() after check_first(). */
int submit_checked(struct context *ctx, json_t *spec, const struct queueing *q, int64_t *ret_id);
/* Prints the id, then waits silently or watches, if requested. Returns an exit code. */
int submitted(struct context *ctx, int64_t id, bool wait, bool watch);
