/* SPDX-License-Identifier: Apache-2.0 */ /* client/jobs/shell.h - the terminal of a job, on this terminal. */
#pragma once
#include <stdint.h>

struct context;

/* Waits until the job runs, then relays between this terminal and the job's until the job ends. Ctrl-C while it waits
 * cancels the job. Returns an exit code. */
int shell_attach(struct context *ctx, int64_t id);
