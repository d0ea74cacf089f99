/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launch_want.c - the wish of a job's user that a full disk
 * keeps from being stored. */
#include "daemon/launch/block.h"
#include "daemon/launch/launch.h"
#include "daemon/launch/launch_impl.h"
#include "proto/err.h"

enum { PATH_ROOM = LAUNCH_PATH_ROOM };

bool launch_note_want(const char *jobs_dir, const struct job_row *row, const char *store_id, enum job_want want)
{
    char path[PATH_ROOM];
    struct err err;

    launch_own_path(path, jobs_dir, row->id, "want");
    return launch_is_of(jobs_dir, row, store_id, &err) > 0 && block_write(path, want == JOB_WANT_RUN ? "" : job_want_name(want));
}

enum job_want launch_noted_want(const char *jobs_dir, const struct job_row *row, const char *store_id)
{
    char path[PATH_ROOM], note[BLOCK_NOTE_MAX + 1];
    struct err err;

    launch_own_path(path, jobs_dir, row->id, "want");
    block_read(path, note);
    return note[0] && launch_is_of(jobs_dir, row, store_id, &err) > 0 ? job_want_parse(note) : JOB_WANT_RUN;
}
