/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/listener.h - a socket that listens. It accepts some
 * connections in a turn of the loop, and looks at the user before anything else is done: a user who connects more often
 * than BOUND_CONNECTS waits. */
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

struct err;
struct listener;
struct user_shares;

/* Connections that wait for their user's turn. */
enum { LISTENER_WAITING = 512 };

struct listener_events {
    /* A connection; takes the descriptor. */
    void (*connected)(void *arg, int fd, uid_t uid);
    /* A connection could not be accepted. */
    void (*failed)(void *arg, const char *why);
};

/* Listens on a bound socket, and takes its descriptor, even after an error. The kernel keeps up to `backlog`
 * connections in their order until they are accepted. Further clients wait in connect(), or get EAGAIN if they do not
 * block. */
int listener_open(uv_loop_t *loop, int fd, int backlog, struct user_shares *shares, const struct listener_events *events, void *arg,
                  struct listener **ret, struct err *err);
/* Closes the socket and what waits. Frees it later, on the loop. NULL is allowed. */
void listener_close(struct listener *l);
