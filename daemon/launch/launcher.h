/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/launch/launcher.h - detd's end of proto/launch.h: tickets for those who submit, and starts and ends of jobs that run as them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/launch/launch.h"

struct err;
struct launcher;

/* Nothing is left in the scope of a job, whatever its lock or a connection says. exited: the run that launcher_start() or launcher_clear() began, of whose exit is
 * told next; else that was seen when it was killed, and another run may have begun since. */
typedef void launcher_empty(void *arg, int64_t job, bool exited);
/* Nothing is connected before it is needed, and again after detd-launch was restarted. jobs_dir is borrowed. 0 or -ENOMEM. */
int launcher_open(uv_loop_t *loop, const char *path, const char *jobs_dir, launcher_empty *empty, void *arg, struct launcher **ret,
                  struct err *err);
/* Hangs up; what waits is answered with an error. Supervisors run on. NULL is allowed. */
void launcher_close(struct launcher *l);
/* After the loop has closed its handles. */
void launcher_free(struct launcher *l);
/* Whether this node has a detd-launch: its socket is there. NULL: no. */
bool launcher_is_there(const struct launcher *l);
/* Why it cannot be spoken to, as far as was seen when something was last asked; where nothing is connected that is tried. "": it can. NULL is allowed. */
const char *launcher_trouble(struct launcher *l);

/* Once a second: what is not answered in time is answered with an error; of a start, any exit is in time. NULL is allowed. */
void launcher_tick(struct launcher *l);

/* ticket: LAUNCH_TICKET_HEX characters, borrowed; NULL with an error. */
typedef void launcher_sealed(void *arg, const char *ticket, const struct err *err);
/* A ticket for a job of whoever is at the other end of `client`. < 0: nothing was asked, and `done` is not called. */
int launcher_seal(struct launcher *l, int client, int64_t job, const char *store_id, const char *spec, launcher_sealed *done, void *arg,
                  struct err *err);
/* As launch_start(), for a job with a ticket; takes what the request holds. What detd-launch refuses is told as an exit with SUP_EXIT_REFUSED. Where it is
 * gone itself, LAUNCH_UNWATCHED is told. */
int launcher_start(struct launcher *l, const struct launch_request *rq, launch_exit *on_exit, void *arg, struct err *err);
/* Has all removed that is in the folder of a job that was removed. LAUNCH_UNWATCHED: why detd-launch does not tell how that ended. Closes lock_fd. */
int launcher_clear(struct launcher *l, const char *ticket, int lock_fd, launch_exit *on_exit, void *arg, struct err *err);
/* err: why nobody was killed, or NULL. who: whom that reached, "": nobody. one: a process of them, "": not known. gone: nothing of them is left. */
typedef void launcher_killed(void *arg, bool gone, const char *who, const char *one, const struct err *err);
/* Whatever is of the job. < 0: nothing was asked, and `done` is not called. done: NULL where its lock is free: what has let go of that is killed, and nobody waits
 * for it. */
int launcher_kill(struct launcher *l, const char *ticket, launcher_killed *done, void *arg, struct err *err);
