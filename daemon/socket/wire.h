/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/wire.h - a connection of JSON lines on the loop: reading with
 * flow control, an output queue, closing. Both sockets of detd use it.
 *
 * Lines of one connection are handed out in order. After 2 ms of work in one turn of the loop, the remaining lines wait
 * for the next turns; there, the connection that has waited longest comes first. So no client keeps the others waiting.
 * Output is collected and written once a turn. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct err;
struct wire;

/* Each connection may hold an unfinished line of WIRE_SHORT_BYTES. Longer ones share BOUND_LONG_LINES. */
enum { WIRE_SHORT_BYTES = 64 << 10 };

/* State that all wires of a loop share. Lives as long as the loop. */
struct wires {
    uv_loop_t *loop;
    uv_prepare_t prepare;
    uv_idle_t idle;
    uint64_t turn_started, longest_turn, idle_time; /* ns */
    uint64_t turn_cpu, longest_cpu;                 /* ns of the loop's thread */
    struct wire *dirty, *waiting, **last_waiting;
    struct wire *first;
    size_t long_bytes;   /* bytes in frames past WIRE_SHORT_BYTES each, without trusted wires */
    size_t queued_bytes; /* not handed to the kernel yet */
};

struct wire_events {
    /* A line without its newline; it may be changed and lives until the call returns. */
    void (*line)(struct wire *w, const char *line, size_t len);
    /* A line was too long or could not be kept, or there is no room for long ones. The wire closes after its queued
     * output was sent. */
    void (*broken)(struct wire *w, const struct err *err);
    /* The peer stopped sending; it may still read. NULL: the wire closes after its queued output was sent. */
    void (*ended)(struct wire *w);
    /* All output was handed to the kernel. NULL: not needed. */
    void (*drained)(struct wire *w);
    /* The last call: the wire is gone when it returns. The owner is NULL if it was never set. */
    void (*closed)(struct wire *w);
};

int wires_open(struct wires *all, uv_loop_t *loop, struct err *err);
/* The longest turn of the loop in ms since the last call, which is the longest wait of a client for the others.
 * *ret_cpu_ms: the most CPU time of a turn, without the time of other processes. */
double wires_longest_ms(struct wires *all, double *ret_cpu_ms);

/* Takes a connection and starts reading. NULL with *err set, and the descriptor is closed: out of memory or refused by
 * the system. */
struct wire *wire_accept(struct wires *all, int fd, size_t max_line, const struct wire_events *events, struct err *err);
/* Replaces the owner's pointer; wire_owner() returns it. */
void wire_set_owner(struct wire *w, void *owner);
void *wire_owner(const struct wire *w);
int wire_fd(const struct wire *w);
/* Its long lines count for this user, which has no admin rights. */
void wire_set_guest(struct wire *w, uid_t uid);
/* Its long lines do not count for the shared room. */
void wire_trust(struct wire *w);
/* Queues bytes. Does nothing on a closing wire. */
void wire_send(struct wire *w, const char *bytes, size_t len);
size_t wire_queued(const struct wire *w);
/* Bytes that the kernel has taken since the beginning. While this number does not change, the peer reads nothing. */
uint64_t wire_sent(const struct wire *w);
/* Stops handing out lines, or starts it again. */
void wire_hold(struct wire *w, bool hold);
/* Closes now, or once all queued output was sent. May be called twice, and from within line(). */
void wire_close(struct wire *w);
void wire_close_after_send(struct wire *w);
