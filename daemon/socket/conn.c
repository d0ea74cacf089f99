#include "daemon/socket/conn.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/socket/door.h"
#include "daemon/jobs/event.h"
#include "daemon/base/log.h"
#include "daemon/base/text.h"
#include "daemon/socket/listener.h"
#include "daemon/base/turns.h"
#include "daemon/socket/wire.h"
#include "proto/err.h"
#include "proto/host/passed.h"
#include "proto/rpc.h"

/* BACKLOG: while a user connects without end the queue is full, and a newcomer waits behind all of it.
 * MARK_BYTES: bytes of a tree for each mark of its text; an empty object has two marks. */
enum { BACKLOG = 128, REFUSALS_S = 10, MARK_BYTES = 128 };

struct conn {
    struct conns *all;
    struct conn *prev, *next;
    struct turns_party party;
    struct wire *wire; /* NULL: closed; the conn lives until its last request is answered */
    struct caller caller;
    int in_flight;
    size_t bytes; /* of the requests in flight */
    bool large;   /* one of them is large; later ones wait until it is answered */
    bool ended;   /* the client sends no more; close after the last reply */
    bool leaving; /* its place was given to another client */
    uint64_t idle_since, sent;
    int still_s; /* seconds since it has read any of its waiting output */
    unsigned topics;
    int64_t job;
    long dropped;
};

struct conns {
    struct conns_config c;
    struct listener *listeners[2]; /* the second one for admins */
    bool open, bound[2];           /* bound: the socket's file is ours to remove */
    struct conn *first;
    int count;
    uint64_t requests;
    unsigned topics;                         /* union of all clients' topics */
    int large;                               /* number of large requests that are trees */
    struct large *first_large, **last_large; /* lines that wait for a place */
    size_t waiting_bytes;
    struct turns_party parser;
    double refused; /* when the journal was last told of a refused connection; 0: never */
    int unsaid;     /* refusals since then */
};

/* ---- requests ---- */

/* A connection counts until its last request is answered, even if its client waits no longer. */
static void conn_unref(struct conn *c)
{
    if (c->wire || c->in_flight > 0)
        return;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->all->first = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->all->count--;
    free(c);
}

/* No more replies are made for a client that does not read them. Its limit is lower while the replies of all clients
 * take much memory. */
static bool has_room(const struct conn *c)
{
    size_t queued = c->wire ? wire_queued(c->wire) : 0;

    return queued <= (c->all->c.wires->queued_bytes > CONNS_QUEUE_BYTES ? CONN_QUEUE_BYTES / 16 : CONN_QUEUE_BYTES);
}

static void update_hold(struct conn *c)
{
    if (c->wire)
        wire_hold(c->wire, c->large || c->in_flight >= RPC_MAX_IN_FLIGHT || c->bytes >= CONN_FLIGHT_BYTES || !has_room(c));
}

static void start_large(struct conns *all);

/* Counts one request less, however it ended. The conn may be gone afterwards. */
static void landed(struct conn *c, size_t bytes, bool large)
{
    struct conns *all = c->all;

    c->in_flight--;
    c->bytes -= bytes;
    c->idle_since = uv_now(all->c.loop) + 1;
    all->large -= large;
    if (large)
        c->large = false;
    if (c->wire && c->ended && c->in_flight == 0)
        wire_close_after_send(c->wire);
    update_hold(c);
    conn_unref(c);
    start_large(all);
}

static void send_line(struct conn *c, char *line, size_t len)
{
    if (line && c->wire)
        wire_send(c->wire, line, len);
    else if (c->wire)
        wire_close(c->wire); /* out of memory: better no connection than a reply that never comes */
    free(line);
}

/* {"jsonrpc":"2.0","id":ID,"result":RAW} without a tree: lists are built as text. */
static void send_raw(struct conn *c, const struct request *rq)
{
    char *id = json_dumps(rq->id, JSON_ENCODE_ANY | JSON_COMPACT);

    if (!id || !c->wire) {
        free(id);
        return;
    }
    wire_send(c->wire, "{\"jsonrpc\":\"2.0\",\"id\":", 22);
    wire_send(c->wire, id, strlen(id));
    wire_send(c->wire, ",\"result\":", 10);
    wire_send(c->wire, rq->raw, rq->raw_len);
    wire_send(c->wire, "}\n", 2);
    free(id);
}

static void send_error(struct conn *c, const json_t *id, int code, const struct err *err)
{
    size_t len = 0;
    char *line = rpc_error(id, code, err, &len);

    send_line(c, line, len);
}

static void request_free(struct request *rq)
{
    json_decref(rq->root);
    json_decref(rq->result);
    free(rq->raw);
    free(rq->note);
    free(rq);
}

static int rpc_error_code(const struct err *err)
{
    return err->code == ERR_UNSUPPORTED && strcmp(err->field, "method") == 0 ? RPC_NO_METHOD : rpc_code(err->code);
}

void request_done(struct request *rq, int rc, const struct err *err)
{
    struct conn *c = rq->conn;
    size_t len = 0, bytes = rq->bytes;
    bool large = rq->large;

    if (rc < 0) {
        send_error(c, rq->id, rpc_error_code(err), err);
    } else if (rq->raw) {
        send_raw(c, rq);
    } else {
        char *line = rpc_result(rq->id, rq->result ? rq->result : json_object(), &len);

        rq->result = NULL;
        send_line(c, line, len);
    }
    request_free(rq);
    landed(c, bytes, large);
}

int request_take(struct request *rq, struct text *t, struct err *err)
{
    rq->raw = text_take(t, &rq->raw_len);
    return rq->raw ? 0 : err_set(err, -ENOMEM, "out of memory for a reply");
}

int request_work(struct request *rq, void (*work)(void *arg), void (*after)(void *arg), void *arg, struct err *err)
{
    if (turns_add(rq->conn->all->c.turns, &rq->conn->party, work, after, arg) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return REQUEST_LATER;
}

int request_fd(const struct request *rq)
{
    return rq->conn->wire ? wire_fd(rq->conn->wire) : -1;
}

bool request_gone(const struct request *rq)
{
    struct pollfd p = { .fd = request_fd(rq) };

    return p.fd < 0 || (poll(&p, 1, 0) == 1 && (p.revents & POLLHUP));
}

int request_wanted(const struct request *rq, struct err *err)
{
    return atomic_load(&rq->conn->party.gone) ? err_set(err, ERR_STATE, "the client has hung up") : 0;
}

/* Calls the method of a parsed line. The request may be answered and gone when this returns, and the conn too. */
static void start_request(struct conn *c, struct rpc_request *parsed, size_t bytes, bool large)
{
    struct request *rq = calloc(1, sizeof *rq);
    struct err err = { 0 };
    int rc;

    if (!rq) {
        err_set(&err, -ENOMEM, "out of memory");
        send_error(c, parsed->id, RPC_INTERNAL, &err);
        rpc_request_clear(parsed);
        landed(c, bytes, large);
        return;
    }
    *rq = (struct request){ .d = c->all->c.d,
                            .conn = c,
                            .caller = c->caller,
                            .id = parsed->id,
                            .params = parsed->params,
                            .root = parsed->root,
                            .bytes = bytes,
                            .large = large };
    rc = c->all->c.call(rq, parsed->method, &err);
    if (rc != REQUEST_LATER)
        request_done(rq, rc, &err);
    else
        update_hold(c);
}

/* Handles a line that is counted as in flight. */
static void handle_parsed(struct conn *c, int rc, struct rpc_request *parsed, int code, const struct err *err, size_t bytes, bool large)
{
    if (rc == 0 && c->wire) {
        start_request(c, parsed, bytes, large);
        return;
    }
    if (rc < 0)
        send_error(c, parsed->id, code, err);
    rpc_request_clear(parsed);
    landed(c, bytes, large);
}

/* ---- large requests are parsed off the loop, a few at a time. The connection waits until its large request is
 * answered, which also keeps its order. ---- */

struct large {
    struct large *next;
    struct conn *conn;
    char *line;
    size_t len;
    struct rpc_request parsed;
    int rc, code;
    struct err err;
};

static void parse_large(void *arg)
{
    struct large *l = arg;

    l->rc = rpc_request_parse(l->line, l->len, &l->parsed, &l->code, &l->err);
}

static void parsed_large(void *arg)
{
    struct large *l = arg;
    struct conn *c = l->conn;

    c->all->waiting_bytes -= l->len;
    handle_parsed(c, l->rc, &l->parsed, l->code, &l->err, 0, true);
    free(l->line);
    free(l);
}

/* Nothing else of its connection is under way then. So a request that holds one of the CONN_LARGE places never waits
 * for its client to read. */
static bool may_start(const struct large *l)
{
    const struct conns *all = l->conn->all;

    return all->large < CONN_LARGE - !l->conn->caller.admin && l->conn->in_flight == 1 && has_room(l->conn);
}

static void start_large(struct conns *all)
{
    struct large **at = &all->first_large;

    while (*at && all->large < CONN_LARGE) {
        struct large *l = *at;

        if (!may_start(l)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        if (!l->next)
            all->last_large = at;
        all->large++;
        if (turns_add(all->c.turns, &all->parser, parse_large, parsed_large, l) == 0)
            continue;
        l->code = RPC_INTERNAL;
        l->rc = err_set(&l->err, -ENOMEM, "out of memory");
        parsed_large(l); /* changes the list */
        at = &all->first_large;
    }
}

static void refuse_large(struct conn *c, int code, const char *why)
{
    struct err err;

    err_set(&err, code, "%s", why);
    send_error(c, NULL, rpc_code(code), &err);
    wire_close_after_send(c->wire);
}

static bool may_wait(const struct conn *c, size_t len)
{
    struct bound_load load = { (int64_t)(c->all->waiting_bytes + len), (int64_t)len, (int64_t)len };

    for (const struct large *l = c->all->first_large; l; l = l->next) {
        load.guests += l->conn->caller.admin ? 0 : (int64_t)l->len;
        load.user += l->conn->caller.uid == c->caller.uid ? (int64_t)l->len : 0;
    }
    return bound_check(BOUND_LARGE_REQUESTS, &load, c->caller.admin, NULL) == 0;
}

static void queue_large(struct conn *c, const char *line, size_t len)
{
    struct conns *all = c->all;
    struct large *l = may_wait(c, len) ? calloc(1, sizeof *l) : NULL;

    if (l)
        l->line = malloc(len);
    if (!l || !l->line) {
        free(l);
        refuse_large(c, ERR_STATE, "large requests of clients fill the memory that is reserved for them; try again");
        return;
    }
    memcpy(l->line, line, len);
    l->conn = c;
    l->len = len;
    all->waiting_bytes += len;
    *all->last_large = l;
    all->last_large = &l->next;
    c->in_flight++;
    c->large = true;
    update_hold(c);
    start_large(all);
}

/* ---- wires ---- */

static void on_line(struct wire *w, const char *line, size_t len)
{
    struct conn *c = wire_owner(w);
    struct rpc_request parsed;
    struct err err = { 0 };
    int rc, depth, code = RPC_INTERNAL;
    size_t marks, bytes;

    c->all->requests++;
    if (len > CONN_SMALL_BYTES || (marks = rpc_marks(line, len, &depth)) > CONN_SMALL_MARKS) {
        queue_large(c, line, len);
        return;
    }
    bytes = 2 * len + marks * MARK_BYTES;
    c->in_flight++;
    c->bytes += bytes;
    rc = rpc_request_parse(line, len, &parsed, &code, &err);
    handle_parsed(c, rc, &parsed, code, &err, bytes, false);
}

static void on_broken(struct wire *w, const struct err *err)
{
    send_error(wire_owner(w), NULL, RPC_INVALID, err);
    wire_close_after_send(w);
}

static void on_ended(struct wire *w)
{
    struct conn *c = wire_owner(w);

    if (c)
        c->ended = true;
    if (!c || c->in_flight == 0)
        wire_close_after_send(w);
}

static void on_drained(struct wire *w)
{
    struct conn *c = wire_owner(w);

    if (!c)
        return;
    update_hold(c);
    start_large(c->all);
    turns_go(c->all->c.turns);
}

/* A large request that is alone had room when it began; later notifications do not stop it. */
static bool may_work(const struct turns_party *p)
{
    const struct conn *c = (const struct conn *)((const char *)p - offsetof(struct conn, party));

    return (c->large && c->in_flight == 1) || has_room(c);
}

static void sum_topics(struct conns *all)
{
    all->topics = 0;
    for (const struct conn *c = all->first; c; c = c->next)
        all->topics |= c->topics;
}

static void on_closed(struct wire *w)
{
    struct conn *c = wire_owner(w);

    if (!c)
        return;
    c->wire = NULL;
    c->topics = 0;
    atomic_store(&c->party.gone, true);
    sum_topics(c->all);
    start_large(c->all);
    turns_go(c->all->c.turns);
    conn_unref(c);
}

static const struct wire_events events = { on_line, on_broken, on_ended, on_drained, on_closed };

/* ---- new connections ---- */

/* Writes at most one line in REFUSALS_S, however many connections are refused. */
static void log_refusal(struct conns *all, int fd, const char *why)
{
    struct ucred cred = { .uid = (uid_t)-1 };
    socklen_t len = sizeof cred;

    if (all->refused != 0 && mono_s() - all->refused < REFUSALS_S) {
        all->unsaid++;
        return;
    }
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
    log_line("warning", "refused a connection of user %ld: %s (%d refusals before it were not logged)", (long)(int)cred.uid, why,
             all->unsaid);
    all->refused = mono_s();
    all->unsaid = 0;
}

static void refuse(struct conns *all, int fd, const struct err *err)
{
    size_t len;
    char *line = rpc_error(NULL, rpc_code(err->code), err, &len);

    log_refusal(all, fd, err->msg);
    if (line) /* an empty socket takes the line; sent at once, as its descriptor may be the last */
        send(fd, line, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    free(line);
    passed_close(fd);
}

/* Makes room for one more connection, by closing another one if necessary. */
static int make_room(struct conns *all, const struct caller *caller, struct err *err)
{
    struct door_guest guests[BOUND_CONNECTIONS_MOST], newcomer = { caller->uid, caller->admin, 0 };
    struct conn *conns[BOUND_CONNECTIONS_MOST];
    int n = 0, leaves;

    for (struct conn *c = all->first; c && n < BOUND_CONNECTIONS_MOST; c = c->next) {
        bool busy = !c->wire || c->in_flight > 0 || c->topics || wire_queued(c->wire) > 0;

        if (c->leaving)
            continue;
        conns[n] = c;
        guests[n++] = (struct door_guest){ c->caller.uid, c->caller.admin, busy ? 0 : c->idle_since };
    }
    leaves = door_ask(guests, n, &newcomer, err);
    if (leaves < DOOR_ENTER)
        return leaves;
    if (leaves != DOOR_ENTER) {
        conns[leaves]->leaving = true;
        wire_close(conns[leaves]->wire);
    }
    return 0;
}

static int admit(struct conns *all, int fd, struct caller *ret, struct err *err)
{
    int rc = gate_identify(&all->c.gate, fd, ret, err);

    if (rc == 0)
        rc = gate_spare_files(fd, err);
    return rc == 0 ? make_room(all, ret, err) : rc;
}

static void on_connection(void *arg, int fd, uid_t uid)
{
    struct conns *all = arg;
    struct caller caller;
    struct conn *c;
    struct err err;

    (void)uid;
    if (admit(all, fd, &caller, &err) < 0) {
        refuse(all, fd, &err);
        return;
    }
    c = calloc(1, sizeof *c);
    if (!c) {
        err_set(&err, -ENOMEM, "out of memory for a connection");
        refuse(all, fd, &err);
        return;
    }
    *c = (struct conn){ .all = all, .caller = caller, .next = all->first, .idle_since = uv_now(all->c.loop) + 1 };
    c->party = (struct turns_party){ .uid = caller.uid, .may = may_work };
    c->wire = wire_accept(all->c.wires, fd, RPC_MAX_LINE, &events, &err);
    if (!c->wire) {
        free(c);
        log_refusal(all, -1, err.msg);
        return;
    }
    if (c->next)
        c->next->prev = c;
    all->first = c;
    all->count++;
    wire_set_owner(c->wire, c);
    if (!c->caller.admin)
        wire_set_guest(c->wire, c->caller.uid);
}

static void on_failed(void *arg, const char *why)
{
    log_refusal(arg, -1, why);
}

/* ---- clients that do not read ---- */

static void look_if_read(struct conn *c)
{
    uint64_t sent = wire_sent(c->wire);

    c->still_s = wire_queued(c->wire) > 0 && sent == c->sent ? c->still_s + 1 : 0;
    c->sent = sent;
}

static struct conn *fullest_that_stands(const struct conns *all)
{
    struct conn *found = NULL;

    for (struct conn *c = all->first; c; c = c->next)
        if (c->wire && c->still_s >= CONN_STILL_S && (!found || wire_queued(c->wire) > wire_queued(found->wire)))
            found = c;
    return found;
}

void conns_tick(struct conns *all)
{
    size_t queued = all->c.wires->queued_bytes;
    struct conn *c;

    for (c = all->first; c; c = c->next)
        if (c->wire)
            look_if_read(c);
    while (queued > CONNS_QUEUE_BYTES && (c = fullest_that_stands(all))) {
        queued -= wire_queued(c->wire);
        log_line("warning", "closed a connection of user %ld: for %d s it read none of %zu bytes, and others need the room",
                 (long)c->caller.uid, c->still_s, wire_queued(c->wire));
        c->still_s = 0;
        wire_close(c->wire);
    }
}

/* ---- subscriptions ---- */

void conn_subscribe(struct conn *c, unsigned topics, int64_t job)
{
    c->topics = topics;
    c->job = job;
    sum_topics(c->all);
}

bool conns_wanted(const struct conns *all, unsigned topic)
{
    return all && (all->topics & topic) != 0;
}

static void tell_drops(struct conn *c)
{
    char line[96];
    int n = snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"method\":\"dropped\",\"params\":{\"count\":%ld}}\n", c->dropped);

    wire_send(c->wire, line, (size_t)n);
    c->dropped = 0;
}

void conns_notify(struct conns *all, unsigned topic, int64_t job, const char *params)
{
    const char *name = topic == TOPIC_JOBS ? "jobs" : topic == TOPIC_LOSSES ? "losses" : "events";
    char head[64];
    int n = snprintf(head, sizeof head, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\",\"params\":", name);

    if (!conns_wanted(all, topic))
        return;
    for (struct conn *c = all->first; c; c = c->next) {
        if (!(c->topics & topic) || !c->wire || (c->job && c->job != job))
            continue;
        if (wire_queued(c->wire) > CONN_NOTIFY_BYTES) {
            c->dropped++;
            continue;
        }
        if (c->dropped)
            tell_drops(c);
        wire_send(c->wire, head, (size_t)n);
        wire_send(c->wire, params, strlen(params));
        wire_send(c->wire, "}\n", 2);
    }
}

/* ---- listening ---- */

static int listen_at(struct conns *all, const char *path, int fd, int i, struct err *err)
{
    static const struct listener_events listening = { on_connection, on_failed };
    const struct gate main = all->c.gate, gate = { path, main.private, main.everyone_reads && i == 0, main.admin_gid };
    int rc = fd >= 0 ? fd : gate_bind(&gate, &all->bound[i], err);

    if (rc >= 0)
        rc = listener_open(all->c.loop, rc, BACKLOG, all->c.shares, &listening, all, &all->listeners[i], err);
    if (rc < 0 && err->code != 0)
        err_prefix(err, "socket '%s'", path);
    return rc;
}

int conns_open(const struct conns_config *config, struct conns **ret, struct err *err)
{
    struct conns *all = calloc(1, sizeof *all);
    struct err why = { 0 };
    int rc;

    if (!all)
        return err_set(err, -ENOMEM, "out of memory");
    all->c = *config;
    all->open = true;
    all->last_large = &all->first_large;
    all->parser.uid = (uid_t)-1;
    *ret = all; /* from here on the caller closes it */
    rc = listen_at(all, config->gate.path, config->listen_fd, 0, err);
    if (rc == 0 && config->admin_path[0] && listen_at(all, config->admin_path, config->admin_fd, 1, &why) < 0)
        log_line("warning", "admins have no socket of their own: %s", why.msg);
    return rc;
}

void conns_close(struct conns *all)
{
    if (!all || !all->open)
        return;
    all->open = false;
    for (int i = 0; i < 2; i++) {
        if (all->bound[i])
            unlink(i == 0 ? all->c.gate.path : all->c.admin_path);
        listener_close(all->listeners[i]);
    }
    for (struct conn *c = all->first, *next; c; c = next) {
        next = c->next;
        if (c->wire && c->in_flight == 0)
            wire_close_after_send(c->wire);
        else
            c->ended = true;
    }
}

void conns_drop(struct conns *all)
{
    for (struct conn *c = all ? all->first : NULL; c; c = c->next)
        if (c->wire)
            wire_close(c->wire);
}

void conns_free(struct conns *all)
{
    free(all);
}

int conns_count(const struct conns *all)
{
    return all->count;
}

uint64_t conns_requests(const struct conns *all)
{
    return all->requests;
}
