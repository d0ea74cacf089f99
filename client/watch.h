/* client/watch.h - follows a job until it ends: as a live screen, as lines, or without a word. */
#pragma once
#include <stdint.h>

struct context;

enum watch_how { WATCH_QUIETLY, WATCH_LINES, WATCH_SCREEN };

/* Exit code of the job's outcome (done, failed, cancelled) or what kept us from seeing it. Ctrl-C leaves the job alone and says so.
 * A detd that restarts is waited for. term: of the losses shown, NULL: all (lines only). */
int watch_job(struct context *ctx, int64_t id, const char *term, enum watch_how how);
