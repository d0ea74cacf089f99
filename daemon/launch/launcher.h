/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launcher.h - detd's end of proto/launch.h: tickets for
 * submitters, and starts and ends of jobs that run as them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/launch/launch.h"
#include "proto/host/sha256.h"

struct err;
struct launcher;

/* Called when nothing is left in the scope of a job, independent of its lock or connection. exited: the run of
 * launcher_start() or launcher_clear() has left; its exit is reported next. Otherwise a kill found the scope empty, and
 * another run may have begun since. */
typedef void launcher_empty(void *arg, int64_t job, bool exited);
/* The connection is made when it is needed, and again after detd-launch was restarted. jobs_dir is borrowed. 0 or
 * -ENOMEM. */
int launcher_open(uv_loop_t *loop, const char *path, const char *jobs_dir, launcher_empty *empty, void *arg, struct launcher **ret,
                  struct err *err);
/* Closes the connection; open requests are answered with an error. Supervisors run on. NULL is allowed. */
void launcher_close(struct launcher *l);
/* To be called after the loop has closed its handles. */
void launcher_free(struct launcher *l);
/* Whether this node has a detd-launch: its socket is there. NULL: no. */
bool launcher_is_there(const struct launcher *l);
/* Why it cannot be spoken to, as seen at the last request; without a connection it tries to connect. "": it can. NULL
 * is allowed. */
const char *launcher_trouble(struct launcher *l);

/* Once a second: answers requests that are overdue with an error; the exit of a start is never overdue. NULL is
 * allowed. */
void launcher_tick(struct launcher *l);

/* ticket: LAUNCH_TICKET_HEX characters, borrowed; NULL with an error. */
typedef void launcher_sealed(void *arg, const char *ticket, const struct err *err);
/* Requests a ticket for a job of the user at the other end of `client`. user: name of that account. spec: SHA-256 of
 * the job's spec, which takes too long for the loop. < 0: nothing was asked, and `done` is not called. */
int launcher_seal(struct launcher *l, int client, int64_t job, const char *user, const char *store_id,
                  const unsigned char spec[SHA256_BYTES], launcher_sealed *done, void *arg, struct err *err);
/* Like launch_start(), for a job with a ticket; takes the contents of the request. A refusal of detd-launch is reported
 * as an exit with SUP_EXIT_REFUSED. If detd-launch is gone, LAUNCH_UNWATCHED is reported. */
int launcher_start(struct launcher *l, const struct launch_request *rq, launch_exit *on_exit, void *arg, struct err *err);
/* Removes the contents of the folder of a removed job. LAUNCH_UNWATCHED: why detd-launch does not report its end.
 * Closes lock_fd. */
int launcher_clear(struct launcher *l, const char *ticket, int lock_fd, launch_exit *on_exit, void *arg, struct err *err);
/* err: why no process was killed, or NULL. who: description of the killed processes, "": no process. one: one of them,
 * "": not known. gone: no process of the job is left. dying: none of them runs its program again, even if it does not
 * end. */
typedef void launcher_killed(void *arg, bool gone, bool dying, const char *who, const char *one, const struct err *err);
/* Kills all processes of the job. < 0: nothing was asked, and `done` is not called. done is NULL if its lock is free:
 * then only processes that have closed the lock are killed, and no answer is needed. */
int launcher_kill(struct launcher *l, const char *ticket, launcher_killed *done, void *arg, struct err *err);
