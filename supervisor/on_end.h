/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/on_end.h - run.on_end: the environment of the user's command.
 * notify.h runs it. */
#pragma once
#include <stdint.h>

struct jobspec;

struct on_end {
    int64_t job;
    const struct jobspec *spec; /* NULL, or env NULL: not read yet; spec.json is read for this message */
    char *const *env;
    int attempt;
    int64_t step; /* of the newest checkpoint */
};

/* Runs the command of run.on_end, if there is one, with a line about "end", "failure" or "hang". Nothing waits for
 * it. */
void on_end_tell(const struct on_end *e, const char *event, const char *outcome, const char *reason);
