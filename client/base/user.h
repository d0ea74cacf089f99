/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/user.h - the user that detctl acts as. Root submits for a user,
 * and runs no program of ours on files of another user: the programs parse what a user wrote. */
#pragma once
#include <jansson.h>

struct context;

/* Becomes the user for good, as `sudo -u NAME` does: user, groups, environment, open files. To be called before
 * anything is opened. Returns in a child without a terminal; the parent prints what that writes, and exits as it does.
 * This and the functions below return 0, or an exit code after complaining. */
int user_become(const char *name);
/* Refuses root if the daemon is the system's. */
int user_may_submit(struct context *ctx);
/* Refuses root if the file, or a link of that name, belongs to another user. A missing file belongs to nobody. */
int user_owns_file(const struct context *ctx, const char *path);
/* Refuses root if the job, an answer of job.get, or its folder belongs to another user. */
int user_owns_job(const struct context *ctx, const json_t *job);
