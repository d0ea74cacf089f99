/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/base/turns.h - work for libuv's pool, in turns, so that nobody's pile of it keeps the others waiting: a party (a client) has one piece running, a user
 * TURNS_USER, and of those that wait the one goes first that has waited longest since its last turn. Everything but the work itself runs on the loop. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

/* One for each thread that libuv's pool has unless it is told otherwise. */
enum { TURNS_MAX = 4, TURNS_USER = 3 };

struct turn;

/* Lives until it has nothing left to do. Zeroed, with uid and may. */
struct turns_party {
    uid_t uid;
    bool (*may)(const struct turns_party *p); /* whether its next piece may start now; NULL: always. Where that changes: turns_go() */
    atomic_bool gone;                         /* nobody waits for it any more; any thread may look */
    bool running, waiting;
    struct turn *first, *last;
    struct turns_party *next;
};

struct turns {
    uv_loop_t *loop;
    uid_t uids[TURNS_MAX]; /* of what is running */
    int running;
    struct turns_party *first, *last; /* with work and nothing running */
};

void turns_init(struct turns *t, uv_loop_t *loop);
/* Runs work(arg) on the pool when it is the party's turn, then after(arg) on the loop; pieces of a party run in order. 0 or -ENOMEM. */
int turns_add(struct turns *t, struct turns_party *p, void (*work)(void *arg), void (*after)(void *arg), void *arg);
/* Starts what may start. */
void turns_go(struct turns *t);
