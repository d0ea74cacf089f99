/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/conn.h - the control socket: clients and their users, their
 * requests in flight, their subscriptions. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/socket/gate.h"

struct daemon;
struct err;
struct text;
struct turns;
struct wires;

/* Limits of replies that wait to be read. A client with CONN_QUEUE_BYTES of them gets no more replies made; the limit
 * is a sixteenth while all clients together have CONNS_QUEUE_BYTES. */
enum { CONN_QUEUE_BYTES = 1 << 20, CONNS_QUEUE_BYTES = 48 << 20, CONN_NOTIFY_BYTES = 256 << 10 };
/* A client that has read no replies for so long is closed, those with the most unread bytes first, until all clients
 * together have less than CONNS_QUEUE_BYTES. */
enum { CONN_STILL_S = 30 };
/* Limits of requests. A small request is parsed on the loop; a connection is read while its small requests take less
 * than CONN_FLIGHT_BYTES together. A large request is the only request of its connection in flight. All connections
 * together have CONN_LARGE large ones as trees, one of which is for admins alone. Those that wait as lines share
 * BOUND_LARGE_REQUESTS. */
enum { CONN_SMALL_BYTES = 16 << 10, CONN_SMALL_MARKS = 512, CONN_FLIGHT_BYTES = 128 << 10, CONN_LARGE = 4 };

/* A request on its way. A method either fills the answer and returns 0 or an error, or keeps the request, returns
 * REQUEST_LATER and answers with request_done() on the loop. Its client may be gone by then. */
struct request {
    struct daemon *d; /* the daemon with the methods */
    struct conn *conn;
    struct caller caller;
    json_t *id, *params; /* params: object; both borrowed from root */
    json_t *root;
    size_t bytes; /* approximate size of the tree */
    bool large;   /* one of CONN_LARGE */
    /* the answer: one of the two */
    json_t *result;
    char *raw; /* JSON text for free() */
    size_t raw_len;
    char *note; /* event about the request, once it is granted (methods.h); for free() */
    int64_t note_job;
};

enum { REQUEST_LATER = 1 };

/* Answers and frees the request. rc < 0: with *err. */
void request_done(struct request *rq, int rc, const struct err *err);
/* Takes the text as the result. Returns 0 or -ENOMEM. */
int request_take(struct request *rq, struct text *t, struct err *err);
/* Runs work(arg) on libuv's pool when it is the client's turn (turns.h), then after(arg) on the loop. For file work and
 * queries. */
int request_work(struct request *rq, void (*work)(void *arg), void (*after)(void *arg), void *arg, struct err *err);

/* The client's descriptor, valid only during this call of the loop; -1: the client is gone. */
int request_fd(const struct request *rq);
/* Whether the client has closed its connection. A client that only stops sending (SHUT_WR) still waits for its answer.
 * On the loop. */
bool request_gone(const struct request *rq);
/* Returns 0 while the client is there, otherwise ERR_STATE. For work that only produces the answer; on any thread. */
int request_wanted(const struct request *rq, struct err *err);

/* All borrowed. */
struct conns_config {
    uv_loop_t *loop;
    struct wires *wires;
    struct turns *turns; /* of request_work() */
    struct user_shares *shares;
    int listen_fd, admin_fd; /* >= 0: sockets that listen already */
    struct gate gate;
    /* A second socket, which only root and group detd may open. Others cannot fill its queue; it gives no rights. "";
     * no such socket. */
    const char *admin_path;
    /* Calls the method `method`. Answers in the way of struct request. */
    int (*call)(struct request *rq, const char *method, struct err *err);
    struct daemon *d; /* for the requests */
};

struct conns;
/* Listens at the gate and the socket for admins, or on the descriptors. */
int conns_open(const struct conns_config *config, struct conns **ret, struct err *err);
/* Stops listening, closes all clients after their queued output was sent, removes the socket. */
void conns_close(struct conns *all);
/* Closes all remaining connections, answered or not. */
void conns_drop(struct conns *all);
void conns_free(struct conns *all);
int conns_count(const struct conns *all);
/* Once a second. */
void conns_tick(struct conns *all);
/* The number of lines of clients so far. */
uint64_t conns_requests(const struct conns *all);

/* From now on the client gets notifications of these topics (event.h); job 0: of all jobs. */
void conn_subscribe(struct conn *c, unsigned topics, int64_t job);
/* Whether there is a listener. Saves building the text. */
bool conns_wanted(const struct conns *all, unsigned topic);
/* Sends a notification {method, params} to the subscribers. A client that is behind loses it, and later gets the number
 * of lost ones. */
void conns_notify(struct conns *all, unsigned topic, int64_t job, const char *params);
