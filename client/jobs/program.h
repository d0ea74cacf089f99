/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/program.h - a job that is a program of the user: what is known
 * of it before it is queued. */
#pragma once
#include <jansson.h>
#include <stdbool.h>

/* Whether the object form of a job file has program.command. */
bool program_is(const json_t *spec);
/* Looks for the folder and the command, as the user, with the PATH of the spec's run.env, else with that of detctl.
 * Returns 0, or an exit code after complaining. spec: with absolute paths. */
int program_check(const json_t *spec);
