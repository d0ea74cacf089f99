/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/link.h - the connection to detd: one call at a time, blocking.
 * A lost connection is made again and the call repeated. Every method may be repeated: submissions carry a token,
 * commands are wishes. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct link;

/* The socket of detd: `given`, otherwise DETD_SOCKET, otherwise the user's own daemon if its socket exists, otherwise
 * the system's. The text lives as long as the program. */
const char *link_default_path(const char *given);
enum { LINK_ANSWER_S = 60 };
/* Connects. answer_s: how long a call waits for its answer, and this function for its turn among the connecting
 * clients. -ENOTCONN: no daemon listens there (msg says how to start one). Caller closes. */
int link_open(const char *path, int answer_s, struct link **ret_link, struct err *err);
void link_close(struct link *l);
/* Sets how long a call tries to reconnect after it first lost the connection, in seconds. < 0: until interrupted, and
 * it waits as long for its answer. Default 10. */
void link_patience(struct link *l, double seconds);
/* Sets how long a call waits for its answer from now on. */
void link_answer_within(struct link *l, int seconds);
/* Calls a method; steals params. *ret_result is a new reference. Errors of the daemon are passed on. -ENOTCONN: it went
 * away; ERR_TIMEOUT: no answer in time (after 2 s a line on stderr says that it waits); -EINTR: a signal came (see
 * command.h). */
int link_call(struct link *l, const char *method, json_t *params, json_t **ret_result, struct err *err);
/* Whether the last call has sent its request and got no answer. detd may have carried it out, or may do so later. */
bool link_unanswered(const struct link *l);
/* From now on detd notifies this connection, and later ones that replace it, of changes of the job; link_wait() returns
 * on a notification. */
int link_subscribe(struct link *l, int64_t job, struct err *err);
/* Returns when a notification has come since the last link_wait(), when the connection was lost, on a signal, or after
 * `ms`. */
void link_wait(struct link *l, int ms);
