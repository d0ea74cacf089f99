/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/after.h - decides whether a job still waits for another one
 * (run.after). daemon/run/run.c acts on it, daemon/run/why.c tells it. */
#pragma once

struct job;
struct jobs;

enum after {
    AFTER_CLEAR, /* it waits for no job */
    AFTER_WAITS,
    AFTER_NEVER /* the other job had to complete, and did not */
};
/* *ret_other: the job that it waits for; NULL: it waits for no job, or the job was removed. */
enum after after_look(struct jobs *jobs, const struct job *j, const struct job **ret_other);
