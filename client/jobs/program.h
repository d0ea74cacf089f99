/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/program.h - a job that is a program of the user: what is known
 * of it before it is queued. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct context;

/* Whether the object form of a job file has program.command. */
bool program_is(const json_t *spec);
/* Looks for the folder and the command, as the user, with the PATH of the spec's run.env, else with that of detctl.
 * Returns 0, or an exit code after complaining. spec: with absolute paths. */
int program_check(const json_t *spec);
/* Of a job without rows: if it is a program, says which call reports `what` to detd, as run.loss(). Returns whether it
 * is one. */
bool program_tell_none(struct context *ctx, int64_t id, const char *what, const char *with);
