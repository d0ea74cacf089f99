/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/turns.h - work for libuv's pool, in turns, so that a pile of
 * work of one client does not keep the others waiting. A party (a client) has one piece running, a user has TURNS_USER.
 * Of the waiting parties, that with the longest wait since its last turn goes first. Only the work itself runs outside
 * the loop. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

/* One running piece for each thread of libuv's pool with its default size. */
enum { TURNS_MAX = 4, TURNS_USER = 3 };

struct turn;

/* Must live until its work is done. Initially zero except uid and may. */
struct turns_party {
    uid_t uid;
    bool (*may)(const struct turns_party *p); /* whether its next piece may start now; NULL: always. After a change call turns_go() */
    atomic_bool gone;                         /* its result is no longer needed; any thread may look */
    bool running, waiting;
    struct turn *first, *last;
    struct turns_party *next;
};

struct turns {
    uv_loop_t *loop;
    uid_t uids[TURNS_MAX]; /* of the running pieces */
    int running;
    struct turns_party *first, *last; /* parties with work and no running piece */
};

void turns_init(struct turns *t, uv_loop_t *loop);
/* Runs work(arg) on the pool when it is the party's turn, then after(arg) on the loop; pieces of a party run in order.
 * 0 or -ENOMEM. */
int turns_add(struct turns *t, struct turns_party *p, void (*work)(void *arg), void (*after)(void *arg), void *arg);
/* Starts all pieces that may start. */
void turns_go(struct turns *t);
