/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/watch.h - follows a job until it ends: on a live screen, with
 * lines, or silently. */
#pragma once
#include <jansson.h>
#include <stdint.h>

struct context;

enum watch_how {
    WATCH_QUIETLY,
    WATCH_STEPS,
    WATCH_LINES,
    WATCH_SCREEN
}; /* STEPS: a line on stderr that changes; without a terminal, a line for each new reason to wait and a line when it runs */

/* Returns the exit code of the job's outcome (done, failed, cancelled), or of the error that ended the watching. Ctrl-C
 * does not stop the job, and a message says so. Waits for a detd that restarts. term: of the losses shown, NULL: all
 * (lines only). */
int watch_job(struct context *ctx, int64_t id, const char *term, enum watch_how how);
/* The same without a message at the end: 0 with the job in its final state (a new reference), or an exit code. */
int watch_until_end(struct context *ctx, int64_t id, enum watch_how how, const char *term, json_t **ret_job);
