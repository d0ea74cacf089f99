/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/jobs/after.h - jobs that run after another one (run.after). */
#pragma once

struct job;
struct jobs;

enum after {
    AFTER_CLEAR, /* nothing is waited for */
    AFTER_WAITS,
    AFTER_NEVER /* it was to complete, and did not */
};
/* *ret_other: the job that is waited for; NULL: there is none, or it was removed. */
enum after after_look(struct jobs *jobs, const struct job *j, const struct job **ret_other);
