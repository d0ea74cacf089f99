/* SPDX-License-Identifier: Apache-2.0 */ /* daemon/socket/door.h - whether one more connection is taken, and which one has to leave for it; who may take how much of a room. Pure: no I/O. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

enum { DOOR_MAX = 512, DOOR_ADMINS = 32, DOOR_USER_MAX = 128 };

struct door_guest {
    uid_t uid;
    bool admin;
    uint64_t idle_since; /* of any clock; 0: it waits for an answer, or listens to notifications */
};

enum { DOOR_ENTER = -1 };

/* A user who is no admin has at most DOOR_USER_MAX connections, all such users together DOOR_MAX - DOOR_ADMINS, and all users DOOR_MAX. Where that is
 * reached, the one that has been idle longest leaves: of the same user, or of all who are no admins; for an admin, of all. Returns its index in guests,
 * DOOR_ENTER where there is room, or ERR_STATE with a sentence: too many, and none is idle. */
int door_ask(const struct door_guest *guests, int n, const struct door_guest *newcomer, struct err *err);

/* What lies in a room that all share, in bytes, with what shall come in. */
struct door_load {
    size_t all, guests, user; /* guests: of all users who are no admins; user: of the one whom it is about */
};

/* A user who is no admin has a quarter of the room, all such users three quarters. */
bool door_fits(const struct door_load *load, bool admin, size_t room);
