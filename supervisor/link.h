/* SPDX-License-Identifier: Apache-2.0 */ /* supervisor/link.h - the connection to detd: sends what lies in the spool,
 * takes acks and commands, and comes back for ever.
 *
 * Everything that is sequenced goes through the spool: a new record and one that is sent again take the same way. While
 * detd is away nothing here fails; records pile up in the spool. All callbacks come from the loop. */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct err;
struct link;
struct spool;

struct link_config {
    uv_loop_t *loop;
    const char *path; /* of the socket; at most 107 bytes */
    struct spool *spool;
    const char *(*hello)(void *arg); /* the first line of a connection, newline included; borrowed */
    /* The answer to hello. Not 0: this detd is not ours; the connection is dropped and tried again later. */
    int (*welcome)(void *arg, const json_t *msg, struct err *err);
    void (*control)(void *arg, const json_t *msg);
    void (*acked)(void *arg);                     /* after spool_ack() */
    void (*trouble)(void *arg, const char *text); /* one sentence for the log; not repeated while it stays the same */
    void *arg;
};

/* Starts connecting. Caller closes; memory goes when libuv has closed the handles. */
int link_open(const struct link_config *config, struct link **ret, struct err *err);
void link_close(struct link *l);
/* The spool has a new record. */
void link_kick(struct link *l);
/* Sends an unsequenced line, or drops it where detd is away or slow. False: dropped. */
bool link_send(struct link *l, const char *line, size_t len);
bool link_is_up(const struct link *l);
