#include "daemon/jobs/after.h" /* SPDX-License-Identifier: Apache-2.0 */

#include "daemon/jobs/jobs.h"

/* An end that is not on the disk yet may still be taken back, and so may one that a user's wish asks for. */
static bool has_ended(const struct job *j)
{
    return job_is_done(j->row.state) && j->hidden_until == 0 && !j->wishes && !j->unsaved;
}

enum after after_look(struct jobs *jobs, const struct job *j, const struct job **ret_other)
{
    const struct job *other = j->row.after ? jobs_find(jobs, j->row.after) : NULL;

    *ret_other = other;
    if (other && !has_ended(other))
        return AFTER_WAITS;
    if (j->row.after == 0 || !j->row.after_ok || (other && other->row.state == JOB_COMPLETED))
        return AFTER_CLEAR;
    return AFTER_NEVER;
}
