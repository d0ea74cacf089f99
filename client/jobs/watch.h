/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/watch.h - follows a job until it ends: as a live screen, as lines, or without a word. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct context;

enum watch_how {
    WATCH_QUIETLY,
    WATCH_STEPS,
    WATCH_LINES,
    WATCH_SCREEN
}; /* STEPS: one line on stderr that changes; where that is no terminal, a line for each new reason to wait and one when it runs */

/* Exit code of the job's outcome (done, failed, cancelled) or what kept us from seeing it. Ctrl-C leaves the job alone and says so.
 * A detd that restarts is waited for. term: of the losses shown, NULL: all (lines only). */
int watch_job(struct context *ctx, int64_t id, const char *term, enum watch_how how);
/* The same without a word at the end: 0 with the job as it ended (a new reference), or an exit code. */
int watch_until_end(struct context *ctx, int64_t id, enum watch_how how, const char *term, json_t **ret_job);
