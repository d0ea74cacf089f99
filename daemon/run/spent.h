/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/spent.h - removes the spools of jobs that have ended: 32 MiB each, which nobody reads again once the end is in the database. Whether it is there
 * is asked of the database itself, and only who has the job's lock removes: whenever detd is killed, the spool is there or the stored end. What
 * an earlier detd did not come to is found when the next one starts. The spool of a job that has lost reports stays. */
#pragma once
#include <stdbool.h>

struct job;
struct jobs;

/* The job's end is on disk and none of its processes lives, as far as the loop knows; otherwise nothing happens. */
void spent_job(struct jobs *jobs, const struct job *j);
/* Looks through the folders of all jobs, in another thread, till *stopping. */
void spent_scan(struct jobs *jobs, const bool *stopping);
