/* SPDX-License-Identifier: Apache-2.0 */ /* client/base/link.h - the connection to detd: one call at a time, blocking; a lost connection is made again and the call repeated
 * (every method may be repeated: submissions carry a token, commands are wishes). */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct link;

/* Where detd listens: `given`, else DETD_SOCKET, else the user's own daemon where its socket exists, else the system's. The
 * text lives as long as the program. */
const char *link_default_path(const char *given);
enum { LINK_ANSWER_S = 60 };
/* Connects. answer_s: for how long a call waits for its answer, and this for a place in the queue of those who connect. -ENOTCONN: nobody listens there (msg
 * says how to start one). Caller closes. */
int link_open(const char *path, int answer_s, struct link **ret_link, struct err *err);
void link_close(struct link *l);
/* For how long a call tries again after it lost the connection first, in seconds; < 0: until interrupted, and it waits for its answer as long. Default 10. */
void link_patience(struct link *l, double seconds);
/* From now on a call waits so long for its answer. */
void link_answer_within(struct link *l, int seconds);
/* Calls a method; params are stolen. *ret_result is a new reference. Errors of the daemon come as it told them; -ENOTCONN: it
 * went away; ERR_TIMEOUT: no answer in time (after 2 s a line on stderr says that it waits); -EINTR: a signal came (see command.h). */
int link_call(struct link *l, const char *method, json_t *params, json_t **ret_result, struct err *err);
/* Whether the last call has sent its request, and has had no answer: it may have been carried out, or be carried out later. */
bool link_unanswered(const struct link *l);
/* From now on detd tells this connection, and each that is made after it was lost, of what happens to the job: link_wait() ends by it. */
int link_subscribe(struct link *l, int64_t job, struct err *err);
/* Returns when detd told something since the last link_wait(), the connection was lost, a signal came, or after `ms`. */
void link_wait(struct link *l, int ms);
