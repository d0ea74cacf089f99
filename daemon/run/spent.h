/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/run/spent.h - removes the spools of jobs that have ended: 32 MiB
 * each, and not needed any more once the end is in the database. The database itself is asked for the end, and a spool
 * is removed only under the job's lock. So after a kill of detd at any time, the spool or the stored end is there.
 * Spools that an earlier detd left are found at the next start. The spool of a job that has lost reports stays. */
#pragma once
#include <stdbool.h>

struct job;
struct jobs;

/* Removes the job's spool if its end is on disk and no process of it lives, as far as the loop knows; otherwise does
 * nothing. */
void spent_job(struct jobs *jobs, const struct job *j);
/* Looks through the folders of all jobs, in another thread, until *stopping. */
void spent_scan(struct jobs *jobs, const bool *stopping);
